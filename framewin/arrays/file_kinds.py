"""What files and folders hold arrays, by how they begin."""

from __future__ import annotations

from pathlib import Path

NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
HEADER_BYTES = 32
"""Of a file, by which its kind is known."""
_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
"""Files of which one makes a folder a Zarr group or array."""
_NOT_READ = {
    b"CDF\1": "is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4",
    b"CDF\2": "is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4",
    b"CDF\5": "is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4",
    b"\x0e\x03\x13\x01": "is an HDF4 file; rewrite it as HDF5: h4toh5convert",
    b"\xcd\xf3\x00\x01": "is a CDF file of NASA; rewrite it as netCDF4, as by cdf-to-netCDF",
    b"version https://git-lfs": (
        "is a pointer of Git LFS, in the place of a file that was not fetched; run git lfs pull"
    ),
}
"""How files begin that are known and not read -> what to do about them."""


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr group or array."""
    return any((path / name).is_file() for name in _ZARR_FILES)


def is_hdf5(path: Path) -> bool:
    """Whether a file is of HDF5, perhaps after a block of a user's."""
    import h5py

    return bool(h5py.is_hdf5(path))


def not_read(start: bytes) -> str | None:
    """What to do about a file that begins so, where it is of a known kind that is not read."""
    return next((what for magic, what in _NOT_READ.items() if start.startswith(magic)), None)


def start_of(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)
