"""Arrays of Zarr 2 and 3, in groups or by themselves, with the codecs that are known."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from framewin.arrays.attributes import meaning
from framewin.arrays.choose import choose
from framewin.arrays.file_kinds import is_zarr
from framewin.arrays.foreign_array import (
    MAX_DEPTH,
    OWN_ATTRIBUTE,
    ArrayInfo,
    ForeignArray,
    Values,
)
from framewin.arrays.zarr_guard import bound_chunks, open_node
from framewin.errors import StoreError

CODECS = {
    *("adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta"),
    *("endian", "fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma"),
    *("packbits", "pcodec", "quantize", "sharding_indexed", "shuffle", "transpose"),
    *("vlen-bytes", "vlen-utf8", "zfpy", "zlib", "zstd"),
}
"""Codecs of arrays that are read; others may do anything, as `pickle` does."""


class ZarrArray(ForeignArray):
    """An array of a Zarr group, or one by itself, whose name is empty or that of its folder."""

    def __init__(
        self, path: Path, key: str, array: Any, group: Mapping[str, Any], name: str = ""
    ) -> None:
        """Look at an array.

        Args:
            path: Of the group, or of the array itself.
            key: Path of the array below it, empty for the array itself.
            array: As zarr opened it.
            group: Attributes of the group.
            name: What to call an array that has no key.
        """
        self.path, self.name = path, key or name
        self._folder = path / key
        self._array = array
        _check_codecs(path, key, array)
        bound_chunks(array, f"{path}: {key or path.stem!r}")
        attributes = dict(array.attrs)
        dimensions = getattr(array.metadata, "dimension_names", None)
        dimensions = dimensions or attributes.get("_ARRAY_DIMENSIONS") or _ome_axes(key, group)
        fill = array.metadata.fill_value
        of_xarray = array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes
        if of_xarray and fill is not None:
            # There xarray keeps the attribute _FillValue.
            attributes.setdefault("_FillValue", fill)
        self.info = ArrayInfo(
            array.shape,
            chunks=array.chunks,
            dimensions=tuple("" if d is None else str(d) for d in dimensions or ()) or None,
            is_own=key == "frames" and OWN_ATTRIBUTE in group,
            **meaning(attributes, np.dtype(array.dtype)),
        )

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        return np.asarray(self._array[where])

    def missing_chunk(self) -> str | None:
        steps = self._array.shards or self._array.chunks
        counts = (-(-size // step) for size, step in zip(self._array.shape, steps, strict=True))
        for chunk in itertools.product(*(range(count) for count in counts)):
            key = self._array.metadata.encode_chunk_key(chunk)
            if not (self._folder / key).is_file():
                return str(key)
        return None

    def other(self, name: str, fits: Callable[[tuple[int, ...]], bool]) -> Values | None:
        found = open_node(self.path, name) if is_zarr(self.path / name) else None
        if not isinstance(found, zarr.Array) or not fits(found.shape):
            return None
        _check_codecs(self.path, name, found)
        bound_chunks(found, f"{self.path}: {name!r}")
        return np.asarray(found[:]), dict(found.attrs)

    def files(self) -> Iterator[Path]:
        return (path for path in self._folder.rglob("*") if path.is_file())


def find_zarr(path: Path, name: str | None, num_axes: int | None) -> list[ForeignArray]:
    """The arrays of a folder that `name` names; see `choose`."""
    try:
        node = open_node(path)
    except FileNotFoundError:
        raise StoreError(f"{path} is a folder but no Zarr group or array") from None
    if isinstance(node, zarr.Group):
        arrays = _arrays_below(path, node)
        held = {key: (array.shape, array.dtype) for key, array in arrays.items()}
        chosen = choose(path, name, held, num_axes)
        return [ZarrArray(path, key, arrays[key], dict(node.attrs)) for key in chosen]
    group = path.parent
    if not is_zarr(group):
        return [ZarrArray(path, "", node, {}, name or path.stem)]
    # Its dimensions may be described in the group that holds it.
    attributes = dict(open_node(group).attrs)
    attributes.pop(OWN_ATTRIBUTE, None)
    return [ZarrArray(group, path.name, node, attributes)]


def _arrays_below(path: Path, root: Any) -> dict[str, Any]:
    """All arrays below a group; what links lead to again is looked at once."""
    arrays: dict[str, Any] = {}
    waiting, seen = [("", root)], set()
    while waiting:
        above, group = waiting.pop()
        real = (path / above).resolve()
        if real in seen or above.count("/") > MAX_DEPTH:
            continue
        seen.add(real)
        with warnings.catch_warnings():
            # Of files that are no part of Zarr, such as the record of a store.
            warnings.simplefilter("ignore")
            members = list(group.members())
        for name, member in members:
            if isinstance(member, zarr.Array):
                arrays[f"{above}{name}"] = member
            else:
                waiting.append((f"{above}{name}/", member))
    return arrays


def _ome_axes(name: str, group: Mapping[str, Any]) -> list[str]:
    """Names of the axes of an array by the group's metadata of OME-Zarr, where that has any."""
    found = group.get("ome", group).get("multiscales", ())
    for images in found if isinstance(found, list) else ():
        if name in [level.get("path") for level in images.get("datasets", ())]:
            axes = images.get("axes", ())
            return [axis["name"] if isinstance(axis, dict) else axis for axis in axes]
    return []


def _check_codecs(path: Path, name: str, array: Any) -> None:
    """Refuse an array with a codec that might do more than decode."""
    for codec in _codec_names(array.metadata.to_dict()):
        if codec.removeprefix("numcodecs.") not in CODECS:
            raise StoreError(
                f"{path}: {name!r} has the codec {codec!r}, which framewin does not read; it reads "
                f"{', '.join(sorted(CODECS))}"
            )


def _codec_names(metadata: Any) -> Iterator[str]:
    """Names of the codecs of an array of format 2 or 3, those inside shards too."""
    if metadata.get("zarr_format") == 2:
        codecs = [metadata.get("compressor"), *(metadata.get("filters") or ())]
        yield from (str(codec["id"]) for codec in codecs if codec is not None)
        return
    for codec in metadata["codecs"]:
        yield str(codec["name"])
        inner = codec.get("configuration") or {}
        for key in ("codecs", "index_codecs"):
            yield from _codec_names({"codecs": inner.get(key, ())})
