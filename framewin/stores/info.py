"""What a store holds, in numbers; no frame is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from framewin.stores import Store, durable, num_bytes
from framewin.stores.array_store import ArrayStore


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store in numbers."""

    path: str
    format: str
    """zarr, hdf5, or array for one that framewin did not write."""
    clips: int
    frames: int
    height: int
    width: int
    channels: int
    dtype: str
    step: int
    """Difference between the numbers of neighbouring frames."""
    gaps: int
    """Places inside clips where a frame is missing."""
    longest_run: int
    """Frames of the longest run without a gap."""
    nodata: float | None
    packing: dict[str, Any]
    """What pixel values mean: `scale_factor`, `add_offset`, units and their like."""
    coordinates: dict[str, list[float]]
    """First and last of `y` and `x`, where they are known."""
    compression: str | None
    level: int | None
    chunk_frames: int | None
    bytes: int
    """On disk."""
    pixel_bytes: int
    """Of all frames, uncompressed."""
    identity: str | None

    @property
    def compression_ratio(self) -> float:
        """Bytes of the pixels over bytes on disk."""
        return self.pixel_bytes / self.bytes

    def as_json(self) -> dict[str, Any]:
        """All fields and the compression ratio."""
        return {**asdict(self), "compression_ratio": round(self.compression_ratio, 3)}


def describe(store: Store | ArrayStore) -> StoreInfo:
    """Count what an opened store holds."""
    clips, frame = store.meta.clips, store.meta.frame_format
    foreign = isinstance(store, ArrayStore)
    layout = None if isinstance(store, ArrayStore) else store.layout
    return StoreInfo(
        path=str(store.path),
        format=_format(store),
        clips=len(clips.names),
        frames=clips.num_frames,
        height=frame.height,
        width=frame.width,
        channels=frame.channels,
        dtype=frame.dtype,
        step=clips.step,
        gaps=len(clips.segment_starts) - len(clips.clip_starts),
        longest_run=int(clips.segment_lengths.max()),
        nodata=store.meta.nodata,
        packing=dict(store.meta.packing),
        coordinates={
            name: [found["values"][0], found["values"][-1]]
            for name, found in store.meta.coordinates.items()
        },
        compression=layout.compression if layout else None,
        level=layout.level if layout else None,
        chunk_frames=layout.chunk_frames if layout else None,
        bytes=durable.tree_bytes(store.path) if isinstance(store, ArrayStore) else num_bytes(store),
        pixel_bytes=store.meta.frame_bytes,
        identity=None if foreign else store.identity,
    )


def _format(store: Store | ArrayStore) -> str:
    if isinstance(store, ArrayStore):
        return "array"
    return "hdf5" if "" in store.files else "zarr"
