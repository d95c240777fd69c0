"""Write the small files of this folder, each by a writer that is not framewin.

    python tests/data/make.py FOLDER

Pixel (t, y, x, c) of an exact picture is 13 t + 5 y + 3 x + 50 c + x y // 4, modulo 256 for
uint8; times 251 modulo 65536 for uint16. Codecs that lose something get waves. README.md says
what each file tries, and by which versions it was written.
"""

from __future__ import annotations

import shutil
import sys
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import av
import cv2
import h5py
import numcodecs
import numpy as np
import png
import tensorstore
import tifffile
import xarray
import zarr
from PIL import Image

FRAMES, HEIGHT, WIDTH = 6, 18, 22
WAVES = (12, 32, 48)
WRITERS = (
    "numpy", "pillow", "opencv-python-headless", "pypng", "tifffile", "imagecodecs", "av", "h5py",
    "h5netcdf", "xarray", "zarr", "numcodecs", "tensorstore", "cftime",
)  # fmt: skip


def exact(channels: int = 1, dtype: str = "u1", frames: int = FRAMES) -> np.ndarray:
    """(T, H, W, C)."""
    t, y, x, c = np.ogrid[:frames, :HEIGHT, :WIDTH, :channels]
    values = 13 * t + 5 * y + 3 * x + 50 * c + x * y // 4
    factor = 1 if dtype.endswith("1") else 251
    return (values * factor % 256 ** int(dtype[-1])).astype(dtype)


def waves(dtype: str = "u1") -> np.ndarray:
    """Pictures that survive a lossy codec: (T, H, W)."""
    t, y, x = np.ogrid[: WAVES[0], : WAVES[1], : WAVES[2]]
    smooth = 0.5 + 0.45 * np.sin((x + 4 * t) / 9) * np.cos((y + 2 * t) / 7)
    return np.rint(smooth * np.iinfo(dtype).max).astype(dtype)


def pillow(path: Path, *frames: np.ndarray, mode: str | None = None, **options: Any) -> None:
    first, *others = [Image.fromarray(frame.squeeze()) for frame in frames]
    if mode is not None:
        first, *others = [image.convert(mode) for image in (first, *others)]
    more = {"save_all": True, "append_images": others} if others else {}
    first.save(path, **more, **options)


def coloured(frame: np.ndarray) -> Image.Image:
    """Gray modulo 16 as indices of sixteen colours."""
    image = Image.fromarray(frame[..., 0] % 16)
    image.putpalette([value for index in range(16) for value in (index * 16, 255 - index, index)])
    return image


def opencv(path: Path, frame: np.ndarray, *options: int) -> None:
    assert cv2.imwrite(str(path), frame[..., ::-1] if frame.shape[-1] == 3 else frame, options)


def write_pngs(folder: Path) -> None:
    rgb, gray = exact(3), exact()
    # By text, frame_10 comes before frame_9; and 11 is missing.
    (folder / "numbers").mkdir()
    for number, frame in zip((8, 9, 10, 12, 13, 14), rgb, strict=True):
        pillow(folder / "numbers" / f"frame_{number}.png", frame, optimize=True)
    opencv(folder / "rgb16.png", exact(3, "u2")[0])
    opencv(folder / "gray16.png", exact(1, "u2")[0])
    coloured(gray[0]).save(
        folder / "palette.png", transparency=bytes([0, 128, *[255] * 14]), bits=4
    )
    with (folder / "interlaced.png").open("wb") as file:
        png.Writer(WIDTH, HEIGHT, greyscale=False, bitdepth=8, interlace=True, gamma=0.45).write(
            file, rgb[1].reshape(HEIGHT, -1)
        )
    pillow(folder / "bilevel.png", gray[0] // 128 * 255, mode="1")
    pillow(folder / "animation.png", *exact(3), duration=[40, 40, 40, 120, 40, 40])


def write_images(folder: Path) -> None:
    rgb, gray = exact(3), exact()
    exif = Image.Exif()
    exif[274] = 6
    pillow(folder / "turned.jpg", waves()[0], quality=95, exif=exif)
    opencv(folder / "padded_rows.bmp", rgb[0])
    coloured(gray[0]).save(folder / "palette.bmp")
    opencv(folder / "lossless.webp", rgb[0], cv2.IMWRITE_WEBP_QUALITY, 101)
    pillow(folder / "animation.webp", *rgb, lossless=True, duration=[40, 40, 40, 80, 40, 40])
    levels = gray // 32 * 36
    pillow(folder / "animation.gif", *levels, duration=[40, 40, 40, 80, 40, 40], loop=0)
    opencv(folder / "big_endian.pgm", exact(1, "u2")[0])
    opencv(folder / "text.pgm", gray[0], cv2.IMWRITE_PXM_BINARY, 0)
    pillow(folder / "colour.ppm", rgb[0])


def write_tiffs(folder: Path) -> None:
    words = exact(1, "u2")[..., 0]
    pillow(folder / "pages.tif", *exact(), compression="tiff_lzw")
    tifffile.imwrite(
        folder / "big_endian_planes.tif", exact(3)[0].transpose(2, 0, 1), byteorder=">",
        photometric="rgb", planarconfig="separate", bigtiff=True, compression="zlib",
        predictor=True, rowsperstrip=5,
    )  # fmt: skip
    tifffile.imwrite(folder / "white_is_0.tif", 255 - exact()[..., 0], photometric="miniswhite")
    tifffile.imwrite(
        folder / "tiles_of_floats.tif", words[:3].astype("f4") / 256, photometric="minisblack",
        tile=(16, 16), compression="zlib", predictor=True, metadata={"axes": "TYX"},
    )  # fmt: skip
    tifffile.imwrite(folder / "imagej.tif", words, imagej=True, metadata={"axes": "TYX"})
    opencv(folder / "opencv.tif", exact(3, "u2")[0])


def video(path: Path, codec: str, pictures: np.ndarray, layout: str, **options: str) -> None:
    """Frames 40 ms apart, but the seventh is lost."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.pix_fmt = pictures.shape[2], layout
        stream.height = pictures.shape[1] * 2 // 3 if layout == "yuv420p" else pictures.shape[1]
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = Fraction(1, 25)
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format=layout)
            frame.pts, frame.time_base = number + (number >= 6), Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def yuv(gray: np.ndarray) -> np.ndarray:
    """Gray as the luma of yuv420p, in the range of video: (T, H * 3 / 2, W)."""
    luma = np.rint(16 + gray * (219 / 255)).astype("u1")
    chroma = np.full((len(gray), gray.shape[1] // 2, gray.shape[2]), 128, "u1")
    return np.concatenate([luma, chroma], axis=1)


def write_videos(folder: Path) -> None:
    pictures = yuv(waves())
    options = {"crf": "12", "bf": "2", "preset": "slow"}
    video(folder / "b_frames.mp4", "libx264", pictures, "yuv420p", **options)
    options = {"crf": "15", "b:v": "0"}
    video(folder / "vp9.webm", "libvpx-vp9", pictures, "yuv420p", **options)
    words = exact(1, "u2", frames=12)[..., 0]
    video(folder / "ffv1.mkv", "ffv1", words, "gray16le", level="3", slicecrc="1")


def packed(calendar: str = "standard") -> xarray.Dataset:
    """Temperatures of -20 to 40 degrees as int16, one pixel missing, the fourth time left out."""
    days = [26, 27, 28, 30, 31, 32]
    units = {"units": "days since 2024-02-01", "calendar": calendar}
    values = exact(1, "i2")[..., 0] // 8
    values[2, 3, 4] = -999
    attributes = {"scale_factor": 0.01, "add_offset": 10.0, "_FillValue": np.int16(-999)}
    return xarray.Dataset(
        {"temperature": (("time", "lat", "lon"), values, attributes | {"units": "degC"})},
        {
            "time": ("time", np.array(days, "i4"), units),
            "lat": ("lat", 50 - np.arange(HEIGHT) / 4, {"units": "degrees_north"}),
            "lon": ("lon", np.arange(WIDTH) / 4, {"units": "degrees_east"}),
        },
    )


def write_hdf5(folder: Path) -> None:
    with h5py.File(folder / "earliest.h5", "w", libver="earliest") as file:
        file.create_dataset("movie", data=exact(3), dtype="u1")
        file["clip"] = [b"one"] * 4 + [b"two"] * 2
    with h5py.File(folder / "latest.h5", "w", libver="latest") as file:
        file.create_dataset(
            "group/movie", data=exact(1, "u2")[..., 0], chunks=(2, 9, 22), fletcher32=True,
            shuffle=True, compression="gzip", dtype=">u2",
        )  # fmt: skip
    with h5py.File(folder / "scales.h5", "w") as file:
        movie = file.create_dataset(
            "movie", data=exact()[..., 0].transpose(1, 2, 0), chunks=(18, 22, 4),
            maxshape=(18, 22, None), compression="lzf",
        )  # fmt: skip
        file["time"] = np.array([0, 5, 10, 20, 25, 30], "f4")
        file["time"].attrs["units"] = np.bytes_("minutes since 2024-02-28T23:50:00Z")
        file["y"], file["x"] = np.arange(18, dtype="f4"), np.arange(22, dtype="f4")
        for place, name in enumerate(("y", "x", "time")):
            file[name].make_scale(name)
            movie.dims[place].attach_scale(file[name])


def write_netcdf(folder: Path) -> None:
    packed("noleap").to_netcdf(folder / "noleap.nc", engine="h5netcdf", unlimited_dims=["time"])
    ds = packed()
    ds["temperature"].encoding = {"zlib": True, "complevel": 4, "chunksizes": (1, 18, 22)}
    ds.to_netcdf(folder / "packed.nc", engine="h5netcdf")


def write_zarr(folder: Path) -> None:
    packed().to_zarr(
        folder / "xarray_2.zarr", zarr_format=2, consolidated=True,
        encoding={"temperature": {"chunks": (3, 18, 22)}},
    )  # fmt: skip
    packed("noleap").to_zarr(
        folder / "xarray_3.zarr", zarr_format=3, consolidated=True,
        encoding={"temperature": {"chunks": (3, 18, 22)}},
    )  # fmt: skip
    group = zarr.create_group(folder / "fortran_2.zarr", zarr_format=2)
    array = group.create_array(
        "movie", shape=(FRAMES, HEIGHT, WIDTH, 3), dtype=">u2", chunks=(4, 18, 10, 3), order="F",
        chunk_key_encoding={"name": "v2", "separator": "/"}, compressors=numcodecs.Zlib(),
        filters=[numcodecs.Shuffle(2)],
    )  # fmt: skip
    array[:] = exact(3, "u2")
    zarr.create_array(
        folder / "sharded_3.zarr", data=exact(1, "u2")[..., 0], chunks=(1, 9, 11),
        shards=(4, 18, 22), dimension_names=["time", "y", "x"],
        compressors=[zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()],
    )  # fmt: skip
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder / "tensorstore_3.zarr")},
        "metadata": {
            "codecs": [
                {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
                {"name": "bytes", "configuration": {"endian": "big"}},
                {"name": "gzip", "configuration": {"level": 6}},
            ],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 10, 22]}},
        },
    }
    made = tensorstore.open(
        spec, create=True, dtype=tensorstore.float32, shape=[FRAMES, HEIGHT, WIDTH]
    ).result()
    made[...] = exact()[..., 0].astype("f4") / 4


def write_arrays(folder: Path) -> None:
    np.save(folder / "fortran.npy", np.asfortranarray(exact(3, ">u2")))
    np.savez_compressed(folder / "two.npz", other=np.arange(5), movie=exact()[..., 0])


def main(folder: Path) -> None:
    for kind, write in {
        "png": write_pngs, "images": write_images, "tiff": write_tiffs, "video": write_videos,
        "hdf5": write_hdf5, "netcdf": write_netcdf, "zarr": write_zarr, "numpy": write_arrays,
    }.items():  # fmt: skip
        shutil.rmtree(folder / kind, ignore_errors=True)
        (folder / kind).mkdir(parents=True)
        write(folder / kind)
    files = [path for path in folder.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files)} bytes")
    print(", ".join(f"{name} {version(name)}" for name in WRITERS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
