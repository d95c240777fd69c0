"""Arrays that others wrote, as frames: HDF5, netCDF4, Zarr 2 and 3, .npy and .npz.

`open_frames` opens any of them, for conversion and to be read in place. Each is read through its
own library, which is imported on use; nothing is unpickled, and no link is followed out of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from framewin.arrays import file_kinds
from framewin.arrays.foreign_array import ForeignArray, refusing_damage
from framewin.arrays.frames import FrameArray
from framewin.errors import StoreError


def open_frames(
    path: Path,
    *,
    array: str | None = None,
    axes: str | None = None,
    stream: int | None = None,
    data: bytes | None = None,
) -> FrameArray:
    """Find the frames of a container; nothing of them is read.

    Args:
        path: A Zarr group or array, an HDF5 or netCDF4 file, or a .npy or .npz file.
        array: Name of the array, or a glob pattern of names of which each is a clip; by default
            the only one of three to five axes.
        axes: A letter of `AXES` for each axis; without t the array is a single frame. By
            default what the names of its dimensions or its shape say for certain.
        stream: Number of the array in a .npz file with several.
        data: The first 64 KiB of a .npy file, or all of it, where it has been read already.

    Raises:
        StoreError: No such file or array, axes that do not fit it, values that are not numbers
            of a known kind, or a file that its library cannot read.
    """
    with refusing_damage(path):
        members = _find(path, array, None if axes is None else len(axes), stream, data)
        return FrameArray(members, axes=axes, pattern=array)


def _find(
    path: Path, name: str | None, num_axes: int | None, stream: int | None, data: bytes | None
) -> Sequence[ForeignArray]:
    """The arrays of a container that are meant."""
    if data is None and path.is_dir():
        from framewin.arrays.zarr_arrays import find_zarr

        return find_zarr(path, name, num_axes)
    if data is None and not path.is_file():
        raise StoreError(f"{path} does not exist; expected a Zarr, HDF5, netCDF4 or .npy array")
    start = file_kinds.start_of(path) if data is None else data[: file_kinds.HEADER_BYTES]
    if start.startswith(file_kinds.NPY_MAGIC):
        from framewin.arrays.numpy_files import NpyArray

        return [NpyArray(path, name, data)]
    if start.startswith(file_kinds.ZIP_MAGIC):
        from framewin.arrays.numpy_files import NpzArray

        return [NpzArray(path, stream)]
    reason = file_kinds.not_read(start)
    if reason is not None:
        raise StoreError(f"{path} {reason}")
    from framewin.arrays.hdf5_arrays import find_hdf5

    return find_hdf5(path, name, num_axes)
