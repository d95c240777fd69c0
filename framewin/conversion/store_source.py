"""Stores that framewin wrote as sources of a conversion: their clips, numbers and frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from framewin.errors import SourceError, StoreError
from framewin.sources.info import STORE_KIND, FileInfo, clip_fields, packing_notes
from framewin.stores import open_store

_READ_BYTES = 2**22


def inspect_store(path: str) -> FileInfo:
    """What a store holds; no pixel is read.

    Raises:
        SourceError: It cannot be opened.
    """
    with _source_errors():
        meta = open_store(path, cache_bytes=0).meta
    form = meta.frame_format
    return FileInfo(
        form,
        STORE_KIND,
        f"{form.channels} channels of {form.dtype}",
        packing_notes(meta.packing),
        is_clip=True,
        frames=meta.clips.num_frames,
        nodata=meta.nodata,
        packing=meta.packing,
        # Before it was recorded, alpha was what stores of files of frames had.
        alpha=meta.conversion.get("alpha", "straight"),
        coordinates=meta.coordinates,
        **clip_fields(meta.clips, named=True),
    )


def read_store_from(path: str, first: int) -> Iterator[np.ndarray]:
    """Frames of a store from `first` on, (H, W, C) each.

    Raises:
        SourceError: They cannot be read.
    """
    with _source_errors():
        store = open_store(path, cache_bytes=0)
        chunk = store.layout.chunk_frames or 1
        size = chunk * max(1, _READ_BYTES // (chunk * store.meta.frame_format.nbytes))
        while first < store.meta.clips.num_frames:
            # To the end of a chunk, so that each is decoded once.
            end = min((first // size + 1) * size, store.meta.clips.num_frames)
            yield from store.frames.take(np.arange(first, end))
            first = end


@contextmanager
def _source_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as exc:
        raise SourceError(str(exc)) from exc
