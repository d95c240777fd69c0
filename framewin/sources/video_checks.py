"""What shows that a video file is cut or damaged where FFmpeg says nothing.

A recording that was cut lacks frames at its end, and the headers of many kinds do not count them.
"""

from __future__ import annotations

import re
import struct
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
    bytes.fromhex(name)
    for name in (
        *("18538067", "1F43B675", "1C53BB6B", "1254C367", "114D9B74", "1549A966", "1654AE6B"),
        *("1941A469", "1043A770", "EC", "BF"),
        # Of a cluster whose length is not known: blocks, and groups of them.
        *("A3", "A0"),
    )
)
"""The same of Matroska."""
_Length = Callable[[bytes], int | None]
_MOST_PARTS = 10**6
_TIMED_FORMATS = frozenset({"matroska", "flv"})
_MICROSECONDS = 10**6
_SLICE_FOOTER = 8
_ONES = 0xFFFFFFFF
_BITS_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def promised_bytes(path: str) -> int:
    """Where the last part of a file should end; its size where it does not say.

    What stands behind the end of a whole file is no part of it, whatever length it seems to claim.
    """
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        rule = _rule_by(head)
        if rule is None:
            return size
        length, is_known = rule
        position = 0
        for _ in range(_MOST_PARTS):
            if position >= size:
                return position
            file.seek(position)
            head = file.read(_HEAD_BYTES)
            part = length(head)
            if part is None or (position + part > size and not is_known(head)):
                return size
            position += part
    return size


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


def _rule_by(head: bytes) -> tuple[_Length, Callable[[bytes], bool]] | None:
    """What tells the length of a part from its first bytes, and whether its name is known."""
    if head.startswith(b"\x1aE\xdf\xa3"):
        return _element, lambda data: data[: _number_bytes(data[:1])] in _ELEMENTS
    if head.startswith(b"RIFF"):
        return _chunk, lambda data: True
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return _box, lambda data: data[4:8] in _BOXES
    for place, length in _MPEG_TS_PACKETS.items():
        if head[place : place + 1] == b"G":
            packet = partial(_packet, place, length)
            return packet, lambda data: True
    return None


def _box(data: bytes) -> int | None:
    """Of MP4 and QuickTime; None where it extends to the end of the file."""
    if len(data) < 8:
        return None
    length = int.from_bytes(data[:4], "big")
    if length == 1:
        length = int.from_bytes(data[8:16], "big")
    return length if length >= 8 else None


def _chunk(data: bytes) -> int | None:
    """Of AVI, whose recorder writes the length when it is done."""
    if data[:4] != b"RIFF" or len(data) < 8:
        return None
    [length] = struct.unpack_from("<I", data, 4)
    return length + 8 if length else None


def _packet(place: int, length: int, head: bytes) -> int | None:
    return length if head[place : place + 1] == b"G" else None


def _element(data: bytes) -> int | None:
    """Of Matroska and WebM; of one whose length is not known only its head, so its parts follow."""
    name, length = _number_bytes(data[:1]), _number_bytes(data[_number_bytes(data[:1]) :])
    if not name or name > 4 or not length or name + length > len(data):
        return None
    value = int.from_bytes(data[name : name + length], "big") & ((1 << 7 * length) - 1)
    unknown = value == (1 << 7 * length) - 1
    return name + length + (0 if unknown else value)


def _number_bytes(data: bytes) -> int:
    """Bytes of a number whose first byte begins with so many zeros less one; 0 if it is none."""
    return 9 - data[0].bit_length() if data and data[0] else 0
