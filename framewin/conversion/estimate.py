"""What compression would bring, tried on a sample of the frames."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from framewin.schema import StoreMeta
from framewin.stores.codecs import ZarrCodec
from framewin.stores.layout import NONE, Layout, ResolvedLayout

SAMPLED_CHUNKS = 24
SAMPLED_BYTES = 2**26
TRIES = 3
ESTIMATED = (NONE, "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A layout as it would come out, measured on some chunks with one core."""

    layout: ResolvedLayout
    num_bytes: int
    """Of all frames."""
    ratio: float
    """Bytes of the pixels over bytes stored."""
    read_bytes_per_second: float
    """Pixels that one core decodes, or copies where nothing must be decoded."""
    write_bytes_per_second: float
    """Pixels that one core compresses, or copies."""


def estimate_layouts(
    meta: StoreMeta,
    sample: Callable[[int, int], Iterable[np.ndarray]],
    *,
    level: int | None = None,
    chunk_frames: int | None = None,
) -> list[Estimate]:
    """Try every layout of `ESTIMATED` on a sample of the frames; nothing without a sample.

    Args:
        meta: What would be stored.
        sample: Gives runs of frames (n, H, W, C), at most so many, of at most so many frames;
            called with (frames, runs).
        level: Of zstd.
        chunk_frames: Frames of a chunk.
    """
    layouts = [
        Layout(name, level if name == "zstd" else None, chunk_frames).resolved(
            meta.frame_format, meta.clips.num_frames
        )
        for name in ESTIMATED
    ]
    chunks = _sampled(layouts[-1], meta, sample)
    return [_try(layout, meta, chunks) for layout in layouts if chunks]


def estimate_layout(
    layout: ResolvedLayout, meta: StoreMeta, sample: Callable[[int, int], Iterable[np.ndarray]]
) -> Estimate:
    """Try one layout, in which nothing is left open; the others as for `estimate_layouts`."""
    return _try(layout, meta, _sampled(layout, meta, sample))


def _sampled(
    layout: ResolvedLayout, meta: StoreMeta, sample: Callable[[int, int], Iterable[np.ndarray]]
) -> list[np.ndarray]:
    """Frames for some chunks of a layout."""
    chunk_frames = layout.chunk_frames
    most = max(1, SAMPLED_BYTES // (chunk_frames * meta.frame_format.nbytes))
    return list(sample(chunk_frames, min(SAMPLED_CHUNKS, most)))


def _try(layout: ResolvedLayout, meta: StoreMeta, chunks: list[np.ndarray]) -> Estimate:
    codec = ZarrCodec(layout, meta.frame_format)
    encode = codec.encode if layout.compressed else np.ndarray.tobytes
    out, stored = np.empty_like(max(chunks, key=len)), list[bytes]()

    def write() -> None:
        stored[:] = map(encode, chunks)

    def read() -> None:
        for chunk, data in zip(chunks, stored, strict=True):
            codec.decode(data, out[: len(chunk)])

    write_seconds, read_seconds = (_shortest(work) for work in (write, read))
    pixels = sum(chunk.nbytes for chunk in chunks)
    ratio = pixels / sum(map(len, stored))
    return Estimate(
        layout=layout,
        num_bytes=round(meta.frame_bytes / ratio),
        ratio=ratio,
        read_bytes_per_second=pixels / read_seconds,
        write_bytes_per_second=pixels / write_seconds,
    )


def _shortest(work: Callable[[], None]) -> float:
    """Seconds of the quickest of a few calls: the first one also waits for fresh memory."""
    return min(timeit.repeat(work, number=1, repeat=TRIES))
