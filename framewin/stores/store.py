"""An opened store, the same in every format; a format says where its frames lie."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Protocol

import numpy as np

from framewin.errors import FramewinError
from framewin.remote import Location, RemotePath
from framewin.schema import Int64Array
from framewin.stores import tables
from framewin.stores.chunk_io import ChunkPlace, chunked_frames
from framewin.stores.chunked_frames import ChunkedFrames
from framewin.stores.codecs import Codec
from framewin.stores.mapped_frames import MappedFrames
from framewin.stores.record import Record


class FormatFiles(Protocol):
    """The files of an opened store, made as `Files(path, record, meta, layout, chunks)`."""

    codec: Codec
    shard_chunks: int
    """Chunks of a file of frames."""
    first_byte: int
    """Of raw frames in their file."""
    trailer_bytes: int
    """After each compressed chunk, its crc32c."""
    sizes: dict[str, tuple[int, int | None]]
    """See `Store.files`."""

    def shard(self, number: int) -> Location:
        """A file of frames."""

    def check(self, *, sizes: bool) -> None:
        """Refuse files that contradict the record; with `sizes`, also those on the disk."""

    def damage(self, workers: int) -> Iterator[str]:
        """See `Store.check_rest`; the record's own values are checked there."""


class Store:
    """A store, opened for reading from its record."""

    def __init__(
        self, path: Location, form: ModuleType, cache_bytes: int, *, whole: bool = True
    ) -> None:
        """Read the record.

        Args:
            path: Of the store.
            form: The module of its format.
            cache_bytes: See `framewin.stores.open_store`.
            whole: Refuse a store with missing or shorter files, which cannot be mapped.
        """
        self.path = path
        self._cache_bytes = cache_bytes
        try:
            self._record: Record = form.read_record(path)
            self.meta, self.layout, self.chunks = tables.read(path, self._record)
            self.identity: str = self._record.fields["attributes"]["identity"]
            """Changes with the store's content: pixels, clips, frame numbers, layout."""
            self._files: FormatFiles = form.Files(
                path, self._record, self.meta, self.layout, self.chunks
            )
            self._files.check(sizes=whole)
        except FramewinError:
            raise
        # A damaged record can hold nearly anything.
        except Exception as exc:
            raise tables.unreadable(path, exc) from exc

    @cached_property
    def frames(self) -> MappedFrames | ChunkedFrames:
        """All frames."""
        shard, first_byte = self._files.shard(0), self._files.first_byte
        if self.layout.compressed or isinstance(shard, RemotePath):
            return chunked_frames(self, self._cache_bytes)
        num_frames, frame_format = self.meta.clips.num_frames, self.meta.frame_format
        return MappedFrames.of_file(shard, frame_format, num_frames, offset=first_byte)

    @property
    def files(self) -> dict[str, tuple[int, int | None]]:
        """Name below the store -> size and, where it was recorded, crc32c of each of its files.

        A store that is one file has one, of no name.
        """
        return self._files.sizes

    def statistics(self) -> dict[str, np.ndarray] | None:
        """Those of `framewin.schema.STATISTICS`, float64, (num_frames,) each; None without.

        Raises:
            StoreError: They were changed.
        """
        return tables.read_statistics(self._record, self.meta)

    def source_files(self, rows: Int64Array) -> list[str]:
        """Path below the source folder of the file that each row came from."""
        return self._record.texts(tables.SOURCE_FILE, rows)

    def place(self, chunk: int) -> ChunkPlace:
        """Where the bytes of a chunk are."""
        files = self._files
        shard = files.shard(chunk // files.shard_chunks)
        if self.layout.compressed:
            offset, size = (int(self.chunks[name][chunk]) for name in ("offset", "nbytes"))
            return ChunkPlace(shard, offset, size, files.trailer_bytes)
        size = self.layout.chunk_frames * self.meta.frame_format.nbytes
        return ChunkPlace(shard, files.first_byte + chunk * size, size)

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, (chunk_frames, H, W, C)."""
        self._files.codec.decode(data, out)

    def check_rest(self, workers: int) -> Iterator[str]:
        """Check every byte outside the chunks, in threads where there are several files; yields a
        line for each thing that is damaged."""
        yield from self._files.damage(workers)
