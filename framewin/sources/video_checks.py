"""What shows that a video file is cut or damaged where FFmpeg says nothing.

A recording that was cut lacks frames at its end, and the headers of many kinds do not count them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_HEAD_BYTES = 16
_MPEG_TS_PACKETS = {0: 188, 4: 192}
"""Where a packet of an MPEG transport stream has its G -> its bytes."""
_BOXES = frozenset(
    b"ftyp moov mdat moof free skip wide uuid styp sidx mfra meta udta pnot emsg prft ssix".split()
)
"""Names of parts of MP4 and QuickTime that are believed to be longer than the file is."""
_ELEMENTS = frozenset(
    bytes.fromhex(name.decode())
    for name in b"18538067 1F43B675 1C53BB6B 1254C367 114D9B74 1549A966 1654AE6B 1941A469 "
    b"1043A770 EC BF A3 A0".split()
)
"""The same of Matroska; A3 and A0 are blocks of a cluster whose length is not known."""
_MOST_PARTS = 10**6
_TIMED_FORMATS = frozenset({"matroska", "flv"})
_MICROSECONDS = 10**6
_SLICE_FOOTER = 8
_ONES = 0xFFFFFFFF
_BITS_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_Part = tuple[int | None, bool]
"""The bytes of a part of a file, None where it does not say, and whether its name is known."""


def promised_bytes(path: str) -> int:
    """Where the last part of a file should end; its size where it does not say.

    What follows the end of a whole file is no part of it, whatever length it seems to claim.
    """
    size = Path(path).stat().st_size
    position = 0
    with open(path, "rb") as file:
        part_of = _parts_of(file.read(_HEAD_BYTES))
        for _ in range(_MOST_PARTS):
            if part_of is None or position >= size:
                break
            file.seek(position)
            length, is_known = part_of(file.read(_HEAD_BYTES))
            if length is None or (position + length > size and not is_known):
                return size
            position += length
    return max(position, size)


def promised_seconds(container: Any, stream: Any) -> float:
    """How long a stream is by the header of Matroska or FLV; 0 where that does not say."""
    if not _TIMED_FORMATS & {*container.format.name.split(",")}:
        return 0
    tag = stream.metadata.get("DURATION", "")
    if re.fullmatch(r"\d+:\d\d:\d\d\.\d+", tag):
        hours, minutes, seconds = tag.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    alone = len(container.streams) == 1
    return container.duration / _MICROSECONDS if alone and container.duration else 0


def has_right_checksums(data: bytes) -> bool:
    """Whether each slice of a packet of FFV1 ends with its size and a CRC that is right.

    FFmpeg's decoder paints a slice whose checksum is wrong with the frame before, and says nothing.
    """
    end = len(data)
    while end > _SLICE_FOOTER:
        size = int.from_bytes(data[end - _SLICE_FOOTER : end - _SLICE_FOOTER + 3], "big")
        begin = end - _SLICE_FOOTER - size
        # zlib has the same polynomial for bits in the other order, and turns its result round.
        if begin < 0 or zlib.crc32(data[begin:end].translate(_BITS_TURNED), _ONES) != _ONES:
            return False
        end = begin
    return end == 0 < len(data)


def _parts_of(head: bytes) -> Callable[[bytes], _Part] | None:
    """What reads the first bytes of a part, by those of the file."""
    if head.startswith(b"\x1aE\xdf\xa3"):
        return _element
    if head.startswith(b"RIFF"):
        return _chunk
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return _box
    for place, length in _MPEG_TS_PACKETS.items():
        if head[place : place + 1] == b"G":
            return partial(_packet, place, length)
    return None


def _box(head: bytes) -> _Part:
    """Of MP4 and QuickTime; one that does not say its length extends to the end of the file."""
    length = int.from_bytes(head[:4], "big")
    if length == 1:
        length = int.from_bytes(head[8:16], "big")
    return length if length >= 8 <= len(head) else None, head[4:8] in _BOXES


def _chunk(head: bytes) -> _Part:
    """Of AVI, whose recorder writes the length when it is done."""
    length = int.from_bytes(head[4:8], "little")
    said = head.startswith(b"RIFF") and length and len(head) >= 8
    return length + 8 if said else None, True


def _packet(place: int, length: int, head: bytes) -> _Part:
    return length if head[place : place + 1] == b"G" else None, True


def _element(head: bytes) -> _Part:
    """Of Matroska and WebM; of one whose length is not known only its head, so its parts follow."""
    name = _number_bytes(head)
    length = _number_bytes(head[name:])
    if not 0 < name <= 4 or not length or name + length > len(head):
        return None, False
    unknown = (1 << 7 * length) - 1
    value = int.from_bytes(head[name : name + length], "big") & unknown
    return name + length + (0 if value == unknown else value), head[:name] in _ELEMENTS


def _number_bytes(data: bytes) -> int:
    """Bytes of a number whose first byte begins with so many zeros less one; 0 if it is none."""
    return 9 - data[0].bit_length() if data and data[0] else 0
