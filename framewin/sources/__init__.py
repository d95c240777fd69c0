"""What frames there are, in what order, and how one is decoded."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import BinaryIO, Protocol, cast

import numpy as np

from framewin.schema import FrameFormat

SOURCES = {".png": "framewin.sources.png"}
"""File name suffix -> the module that decodes such files; a `FrameDecoder`."""


class FrameDecoder(Protocol):
    """One kind of image file."""

    def header(self, file: BinaryIO) -> bytes:
        """As much of a file, opened at its beginning, as `frame_format` needs."""

    def frame_format(self, data: bytes, path: str) -> FrameFormat:
        """Shape and dtype that `decode` will give, from the header alone."""

    def decode(self, data: bytes, out: np.ndarray, path: str) -> None:
        """Decode a file of the right format into `out`, (H, W, C); `path` is for errors."""


def decoder_for(path: str) -> FrameDecoder:
    """The decoder of a file that `listing` took for a frame."""
    return _decoder(path[path.rindex(".") :])


@cache
def _decoder(suffix: str) -> FrameDecoder:
    return cast(FrameDecoder, import_module(SOURCES[suffix.lower()]))
