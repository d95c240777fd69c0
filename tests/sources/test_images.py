"""JPEG, BMP, WebP, GIF, TIFF and arrays: exact against another reader, and damage refused."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import struct
import zipfile
from pathlib import Path

import h5py
import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from framewin import FrameFormatError, SourceError, convert
from framewin.conversion.against import compare
from framewin.sources import KINDS, clip_decoder, frame_decoder
from framewin.sources.info import ReadOptions
from framewin.stores import open_store

COLOUR = ReadOptions()
INDEX = ReadOptions(palette="index")


def picture(
    seed: int = 0, shape: tuple[int, ...] = (20, 28, 3), dtype: str = "uint8"
) -> np.ndarray:
    """Noise on a slope."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


def tiff_bytes(pages: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, pages, **options)
    return file.getvalue()


def one(data: bytes, name: str, options: ReadOptions = COLOUR) -> np.ndarray:
    """A single frame, by header and decoder."""
    decoder = frame_decoder(name)
    form = decoder.inspect(data, name, options).frame_format
    out = np.full(form.shape, 7, form.dtype)
    decoder.decode(data, out, name, options)
    return out


def several(path: Path, options: ReadOptions = COLOUR) -> np.ndarray:
    """All frames of a clip file, (T, H, W, C)."""
    decoder = clip_decoder(path.name)
    info = decoder.inspect_clip(str(path), options)
    frames = list(decoder.read_clip(str(path), options))
    assert all(isinstance(frame, np.ndarray) for frame in frames), frames
    stack = np.stack(frames)
    assert (stack.shape, stack.dtype) == (
        (info.frames, *info.frame_format.shape),
        info.frame_format.dtype,
    )
    return stack


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpeg(mode: str) -> None:
    """What libjpeg gives, gray as one channel."""
    data = saved(Image.fromarray(picture()).convert(mode), "jpeg", quality=90)
    expected = imagecodecs.jpeg8_decode(data)
    assert np.array_equal(one(data, "a.JPG"), expected.reshape(20, 28, -1))


def test_orientation_is_reported_not_applied() -> None:
    """EXIF says to turn it; the pixels stay as they are."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind, name in (("jpeg", "a.jpg"), ("webp", "a.webp"), ("png", "a.png")):
        data = saved(Image.fromarray(picture()), kind, exif=exif)
        assert frame_decoder(name).inspect(data, name, COLOUR).notes == ("EXIF orientation 6",)
        assert one(data, name).shape == (20, 28, 3)


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"subsampling": 0}])
@pytest.mark.parametrize("shape", [(64, 64, 3), (61, 67, 3), (64, 64)])
def test_jpeg_that_ends_early(shape: tuple[int, ...], options: dict[str, object]) -> None:
    """Pixels that are missing before a proper end are never one colour; a plain corner is fine."""
    whole = saved(Image.fromarray(picture(shape=shape)), "jpeg", **options)
    for share in (0.5, 0.7, 0.9):
        with pytest.raises(SourceError, match=r"a\.jpg ends before its pixels do; copy it again"):
            one(whole[: int(len(whole) * share)] + b"\xff\xd9", "a.jpg")
    plain = picture(shape=shape)
    plain[30:, 30:] = 7
    data = saved(Image.fromarray(plain), "jpeg", **options)
    expected = imagecodecs.jpeg8_decode(data)
    assert np.array_equal(one(data, "a.jpg"), expected.reshape(*shape[:2], -1))


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_bmp(mode: str) -> None:
    """One bit is scaled to 0 and 255."""
    image = Image.fromarray(picture()).convert(mode)
    expected = np.asarray(image.convert("L" if mode == "1" else mode)).reshape(20, 28, -1)
    assert np.array_equal(one(saved(image, "bmp"), "a.bmp"), expected)


def test_bmp_palette() -> None:
    """Colours, or indices."""
    image = Image.fromarray(picture()).quantize(16)
    data = saved(image, "bmp")
    assert np.array_equal(one(data, "a.bmp"), np.asarray(image.convert("RGB")))
    assert np.array_equal(one(data, "a.bmp", INDEX)[..., 0], np.asarray(image))


def bmp(bits: int, colours: list[tuple[int, int, int]], row: bytes) -> bytes:
    """A file with one row of four pixels."""
    palette = b"".join(bytes([blue, green, red, 0]) for red, green, blue in colours)
    start = 54 + len(palette)
    head = struct.pack("<2sIHHI", b"BM", start + len(row), 0, 0, start)
    head += struct.pack("<IiiHHIIiiII", 40, 4, 1, 1, bits, 0, len(row), 0, 0, len(colours), 0)
    return head + palette + row


def test_bmp_palettes_that_pillow_takes_for_gray() -> None:
    """Indices stay indices, equal colours count apart, and what is misread is refused."""
    black_and_white = bmp(1, [(0, 0, 0), (255, 255, 255)], b"\x50\0\0\0")
    assert one(black_and_white, "a.bmp")[..., 0].tolist() == [[0, 255, 0, 255]]
    assert one(black_and_white, "a.bmp", INDEX)[..., 0].tolist() == [[0, 1, 0, 1]]
    equal = bmp(8, [(9, 8, 7), (1, 2, 3), (1, 2, 3)], b"\0\1\2\0")
    assert one(equal, "a.bmp", INDEX)[..., 0].tolist() == [[0, 1, 2, 0]]
    grays = bmp(4, [(level,) * 3 for level in range(16)], b"\x01\x2f\0\0")
    with pytest.raises(
        SourceError, match=r"a\.bmp has 4 bits and a palette of grays, which Pillow"
    ):
        one(grays, "a.bmp")
    for options in (COLOUR, INDEX):
        with pytest.raises(
            SourceError, match=r"a\.bmp has the palette index 5 in a palette of 2 c"
        ):
            one(bmp(8, [(9, 8, 7), (1, 2, 3)], b"\0\1\5\0"), "a.bmp", options)


def test_what_an_image_holds_beside_its_pixels() -> None:
    """The fourth byte of BMP pixels, and pictures behind the first, are said."""
    rows = bytes(range(16))
    info = frame_decoder("a.bmp").inspect(bmp(32, [], rows), "a.bmp", COLOUR)
    assert (info.notes, info.frame_format.channels) == (("a fourth byte in pixels",), 3)
    image = Image.fromarray(picture())
    data = saved(image, "mpo", save_all=True, append_images=[image])
    found = frame_decoder("a.jpg").inspect(data, "a.jpg", COLOUR).notes
    assert found == ("further pictures behind the first",)


@pytest.mark.parametrize("channels", [3, 4])
def test_webp(channels: int, tmp_path: Path) -> None:
    """Lossless is exact, also of all frames of an animation."""
    pages = [picture(seed, (20, 28, channels)) for seed in range(3)]
    images = [Image.fromarray(page) for page in pages]
    lossless = {"lossless": True, "exact": True}
    assert np.array_equal(one(saved(images[0], "webp", **lossless), "a.webp"), pages[0])
    path = tmp_path / "a.webp"
    path.write_bytes(saved(images[0], "webp", save_all=True, append_images=images[1:], **lossless))
    data = path.read_bytes()
    expected = [imagecodecs.webp_decode(data, index=i, hasalpha=channels == 4) for i in range(3)]
    assert np.array_equal(several(path), np.stack(expected))


def gif_bytes(transparency: bool = False, frames: int = 4) -> bytes:
    images = [Image.fromarray(picture(seed)).quantize(32) for seed in range(frames)]
    options = {"transparency": 3, "disposal": 2} if transparency else {}
    return saved(images[0], "gif", save_all=True, append_images=images[1:], loop=0, **options)


@pytest.mark.parametrize(("transparency", "channels"), [(False, 3), (True, 4)])
def test_gif(tmp_path: Path, transparency: bool, channels: int) -> None:
    """Every frame as it is shown, with an alpha channel where there is transparency."""
    path = tmp_path / "a.gif"
    path.write_bytes(gif_bytes(transparency))
    frames = several(path)
    assert frames.shape == (4, 20, 28, channels)
    with Image.open(path) as image:
        for index, frame in enumerate(frames):
            image.seek(index)
            assert np.array_equal(frame, image.convert("RGBA" if transparency else "RGB"))


@pytest.mark.parametrize(
    ("delays", "numbers", "step"),
    [
        ([100, 100, 100, 100, 700], [0, 1, 2, 3, 4], 1),  # the last one counts for nothing
        ([0, 0, 0, 0, 0], [0, 1, 2, 3, 4], 1),
        ([100, 100, 500, 100, 100], [0, 1, 2, 7, 8], 1),  # equal neighbours, merged
        ([30, 30, 40, 30, 30], [0, 1, 2, 3, 4], 1),  # 30 a second, as encoders round it
        ([100, 100, 250, 100, 100], [0, 100, 200, 450, 550], 100),  # milliseconds
        ([100, 0, 250, 100, 100], [0, 1, 2, 3, 4], 1),
    ],
)
@pytest.mark.parametrize("kind", ["gif", "webp", "png"])
def test_delays_of_animations(
    tmp_path: Path, kind: str, delays: list[int], numbers: list[int], step: int
) -> None:
    """Numbers follow time, and each change of pace is a gap; delays of 0 among others are noted."""
    images = [Image.fromarray(picture(seed)) for seed in range(5)]
    path = tmp_path / ("a.apng" if kind == "png" else f"a.{kind}")
    if kind == "webp" and delays[0] == 30:
        delays = [33, 33, 34, 33, 33]
    data = saved(images[0], kind, save_all=True, append_images=images[1:], duration=delays)
    path.write_bytes(data)
    info = clip_decoder(path.name).inspect_clip(str(path), COLOUR)
    ticks = np.array(numbers) // {"gif": 10, "webp": 1, "png": 50}[kind] if step > 1 else numbers
    found = range(5) if info.numbers is None else info.numbers
    assert [*found] == [*ticks]
    assert ("delays, some of which are 0" in info.notes) == (0 < delays.count(0) < 5)
    seconds = {30: "1/30", 33: "1/30", 0: None}.get(delays[0], "1/10")
    assert info.frame_seconds == (None if 0 in delays[1:2] else seconds)
    report = convert(path, tmp_path / "clips.zarr")
    gaps = int((np.diff(numbers) != step).sum())
    assert len(report.gaps) == gaps


@pytest.mark.parametrize(
    ("kind", "delays", "seconds"),
    [
        ("gif", [20, 30, 20, 30, 20], "1/40"),
        ("gif", [20, 10, 20, 20, 10, 20, 20], "1/60"),
        ("png", [20, 30, 20, 30, 20], "1/40"),
        ("png", [100, 200, 100, 200, 100], None),
    ],
)
def test_delays_that_are_rounded(
    tmp_path: Path, kind: str, delays: list[int], seconds: str | None
) -> None:
    """Of rates without whole ticks: no gap; delays of other sizes are meant."""
    images = [Image.fromarray(picture(seed)) for seed in range(len(delays))]
    path = tmp_path / ("a.apng" if kind == "png" else "a.gif")
    data = saved(images[0], kind, save_all=True, append_images=images[1:], duration=delays)
    path.write_bytes(data)
    info = clip_decoder(path.name).inspect_clip(str(path), COLOUR)
    report = convert(path, tmp_path / "clips.zarr")
    assert bool(report.gaps) == (seconds is None)
    if seconds is not None:
        assert info.numbers is not None
        assert [*info.numbers] == [*range(len(delays))]
        assert info.frame_seconds == seconds


def test_uneven_page_times_are_reported(tmp_path: Path) -> None:
    """Of a stack whose pages carry their dates; those that differ by rounding are even."""
    for seconds, uneven in (([0, 5, 10, 30], True), ([0, 1, 1, 2], False)):
        path = tmp_path / f"{uneven}.tif"
        with tifffile.TiffWriter(path) as writer:
            for second in seconds:
                date = f"2024:01:01 00:00:{second:02d}"
                writer.write(picture(shape=(4, 5)), datetime=date, metadata=None)
        notes = clip_decoder("a.tif").inspect_clip(str(path), COLOUR).notes
        assert ("uneven page times" in notes) == uneven
    deltas = {"axes": "TYX", "Plane": {"DeltaT": [0.0, 0.5, 1.0, 4.0]}}
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, picture(shape=(4, 4, 5)), metadata=deltas, photometric="minisblack")
    assert "uneven page times" in clip_decoder("a.tif").inspect_clip(str(path), COLOUR).notes


def test_a_canvas_bomb(tmp_path: Path) -> None:
    """The canvas of a WebP file is held against the limit before the library allots it."""
    pages = [Image.fromarray(picture(seed)) for seed in range(2)]
    data = bytearray(saved(pages[0], "webp", save_all=True, append_images=pages[1:]))
    data[24:30] = b"\xff\xff\x00\xff\xff\x00"
    (tmp_path / "a.webp").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.webp claims 65536x65536 pixels, more than the"):
        convert(tmp_path / "a.webp", tmp_path / "clips.zarr")


def test_a_radar_archive_of_gif_files(tmp_path: Path) -> None:
    """Files of one frame each are frames by the times in their names; the index is exact."""
    (tmp_path / "in").mkdir()
    pages = picture(shape=(4, 20, 28)) % 40
    colours = picture(7, (40, 3))
    for page, name in zip(pages, ("2355", "0000", "0005", "0015"), strict=True):
        image = Image.fromarray(page, "P")
        image.putpalette(colours.tobytes())
        day = 193 if name == "2355" else 194
        image.save(tmp_path / "in" / f"AQC16{day}{name}V.gif", optimize=False)
    names = {"frame_regex": "AQC(?P<time>[0-9]{9})", "time_format": "%y%j%H%M"}
    report = convert(tmp_path / "in", tmp_path / "index.zarr", palette="index", **names)
    assert (report.clips, report.step, len(report.gaps)) == (1, 300, 1)
    assert np.array_equal(open_store(tmp_path / "index.zarr").frames.array[..., 0], pages)
    convert(tmp_path / "in", tmp_path / "colour.zarr", **names)
    assert np.array_equal(open_store(tmp_path / "colour.zarr").frames.array, colours[pages])


def test_indices_of_animations_are_refused(tmp_path: Path) -> None:
    """Neither frames laid over each other nor a canvas that shows have one index a pixel."""
    small = gif_bytes(frames=1)
    for data, frames in ((gif_bytes(), 4), (small[:6] + b"\x40" + small[7:], 1)):
        (tmp_path / "a.gif").write_bytes(data)
        message = f"a.gif is a GIF whose {frames} frames are laid over a canvas as colours; pal"
        with pytest.raises(SourceError, match=re.escape(message)):
            convert(tmp_path / "a.gif", tmp_path / "clips.zarr", palette="index")


@pytest.mark.parametrize("kind", ["gif", "apng", "webp", "npz", "npy"])
def test_files_of_one_frame_are_frames(tmp_path: Path, kind: str) -> None:
    """Of a kind that may be a clip: one clip of the folder; clips beside PNG frames stay clips."""
    for number in (10, 9, 8):
        page = np.full((4, 5, 3), number, np.uint8)
        file = tmp_path / "in" / "one" / f"f{number}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == "npz":
            np.savez_compressed(file, x=page[np.newaxis])
        elif kind == "npy":
            np.save(file, page[np.newaxis])
        else:
            image = Image.fromarray(page)
            image.save(
                file, {"apng": "png"}.get(kind), **({"lossless": True} if kind == "webp" else {})
            )
    report = convert(tmp_path / "in", tmp_path / "clips.zarr")
    assert (report.clips, report.frames, report.gaps) == (1, 3, [])
    frames = open_store(tmp_path / "clips.zarr").frames.array
    assert frames[:, 0, 0].tolist() == [[8] * 3, [9] * 3, [10] * 3]


def test_animations_beside_frames(tmp_path: Path) -> None:
    """They are clips; where single frames come first, an animation among them is named."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(picture(number)).save(folder / f"{number}.png")
    (folder / "walk.gif").write_bytes(gif_bytes())
    report = convert(folder, tmp_path / "clips.zarr")
    assert (report.clips, report.frames) == (2, 7)
    for number in range(3, 6):
        (folder / f"{number}.gif").write_bytes(gif_bytes(frames=1 + number // 5))
    with pytest.raises(SourceError, match=r"such as 3\.gif, beside 5\.gif of several; choose one"):
        convert(folder, tmp_path / "again.zarr", exclude=("walk*",))


@pytest.mark.parametrize("names", [("c1", "c2", "c3"), ("cat", "dog", "owl")])
def test_a_first_animation_of_a_single_frame(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Regression: it made frames of all animations of its folder, which were then refused."""
    (tmp_path / "in").mkdir()
    for name, frames in zip(names, (1, 6, 6), strict=True):
        (tmp_path / "in" / f"{name}.gif").write_bytes(gif_bytes(frames=frames))
    report = convert(tmp_path / "in", tmp_path / "clips.zarr")
    assert (report.clips, report.frames) == (3, 13)
    assert open_store(tmp_path / "clips.zarr").meta.clips.names == names


@pytest.mark.parametrize(
    ("pages", "options"),
    [
        (picture(shape=(20, 28)), {}),
        (picture(shape=(20, 28), dtype="uint16"), {"compression": "zlib", "predictor": True}),
        (picture(dtype="uint16"), {"compression": "lzw", "photometric": "rgb"}),
        (picture(shape=(20, 28, 4)), {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
        (picture(shape=(32, 48, 3)), {"photometric": "rgb", "tile": (16, 16)}),
        (picture(dtype="uint16"), {"byteorder": ">", "photometric": "rgb", "bigtiff": True}),
        (picture(shape=(20, 28)).astype(np.float32) / 7, {"compression": "zstd"}),
    ],
)
def test_tiff(pages: np.ndarray, options: dict[str, object]) -> None:
    """What was written, in its own dtype; so says another decoder."""
    data = tiff_bytes(pages, **options)
    frame = one(data, "a.tiff")
    assert frame.dtype == pages.dtype
    assert np.array_equal(frame, pages.reshape(*pages.shape[:2], -1))
    assert np.array_equal(frame, imagecodecs.tiff_decode(data).reshape(frame.shape))


def test_tiff_planes() -> None:
    """Channels that are stored one behind the other."""
    planes = picture(shape=(3, 20, 28))
    data = tiff_bytes(planes, photometric="rgb", planarconfig="separate")
    assert np.array_equal(one(data, "a.tif"), np.moveaxis(planes, 0, -1))


def test_tiff_of_few_bits() -> None:
    """One bit becomes 0 and 255; where 0 is white the scale is turned."""
    bits = picture(shape=(20, 28)) > 127
    data = tiff_bytes(bits, photometric="minisblack")
    assert np.array_equal(one(data, "a.tif")[..., 0], bits * np.uint8(255))
    gray = picture(shape=(20, 28))
    data = tiff_bytes(gray, photometric="miniswhite")
    assert np.array_equal(one(data, "a.tif")[..., 0], 255 - gray)


def test_tiff_palette() -> None:
    """Colours, or indices."""
    image = Image.fromarray(picture()).quantize(200)
    data = saved(image, "tiff")
    assert np.array_equal(one(data, "a.tif"), np.asarray(image.convert("RGB")))
    assert np.array_equal(one(data, "a.tif", INDEX)[..., 0], np.asarray(image))


def palette_tiff(table: np.ndarray) -> bytes:
    """A 2x2 picture of the colours 1, 2, 2, 1 of a table, (colours, 3), written as it is."""
    picture = np.array([[1, 2], [2, 1]], np.uint8)
    colours = np.zeros((3, 256), np.uint16)
    colours[:, : len(table)] = table.T
    return tiff_bytes(picture, photometric="palette", colormap=colours, metadata=None)


@pytest.mark.parametrize(
    ("factor", "notes"), [(1, ()), (256, ()), (257, ()), (250, ("palette of 16 bits",))]
)
def test_tiff_palettes_of_any_scale(factor: int, notes: tuple[str, ...]) -> None:
    """Tables of 0..255 are colours, too; what 8 bits cannot hold is said."""
    table = np.array([[0, 0, 0], [200, 100, 50], [10, 20, 30]])
    data = palette_tiff(table * factor)
    expected = table if factor != 250 else table * 250 // 256
    assert one(data, "a.tif").reshape(4, 3).tolist() == expected[[1, 2, 2, 1]].tolist()
    assert frame_decoder("a.tif").inspect(data, "a.tif", COLOUR).notes == notes


@pytest.mark.parametrize(
    ("shape", "photometric", "extra", "alpha", "mode"),
    [
        ((4, 5, 4), "rgb", ["unassalpha"], "straight", "RGB and alpha, 8 bits"),
        ((4, 5, 4), "rgb", ["assocalpha"], "premultiplied", "RGB and premultiplied alpha, 8 bits"),
        ((4, 5, 4), "rgb", ["unspecified"], "bands", "RGB and 1 more sample, 8 bits"),
        ((4, 5, 2), "minisblack", ["unspecified"], "bands", "gray and 1 more sample, 8 bits"),
        ((4, 5, 2), "minisblack", ["unassalpha"], "straight", "gray and alpha, 8 bits"),
        ((4, 5, 3), "minisblack", None, "bands", "gray and 2 more samples, 8 bits"),
    ],
)
def test_extra_samples_are_what_the_file_says(
    tmp_path: Path,
    shape: tuple[int, ...],
    photometric: str,
    extra: list | None,
    alpha: str,
    mode: str,
) -> None:
    """All samples are kept; those that are not called alpha are never blended or dropped."""
    (tmp_path / "in").mkdir()
    pages = picture(shape=(2, *shape))
    options = {"photometric": photometric, "extrasamples": extra, "planarconfig": "contig"}
    for index, page in enumerate(pages):
        tifffile.imwrite(tmp_path / "in" / f"{index}.tif", page, metadata=None, **options)
    data = (tmp_path / "in" / "0.tif").read_bytes()
    info = frame_decoder("a.tif").inspect(data, "a.tif", COLOUR)
    assert (info.alpha, info.mode) == (alpha, mode)
    convert(tmp_path / "in", tmp_path / "kept.zarr")
    assert np.array_equal(open_store(tmp_path / "kept.zarr").frames.array, pages)
    if alpha == "bands":
        message = f"0.tif has {shape[2]} channels of data that is not alpha; mode=, drop_alpha="
        for chosen in ({"drop_alpha": True}, {"background": (0, 0, 0)}, {"mode": "gray"}):
            with pytest.raises(FrameFormatError, match=re.escape(message)):
                convert(tmp_path / "in", tmp_path / "other.zarr", **chosen)


def test_premultiplied_alpha_over_a_background(tmp_path: Path) -> None:
    """Colours that alpha is in already are not multiplied by it again; kinds are not mixed."""
    (tmp_path / "in").mkdir()
    straight = np.array([[[200, 100, 0, 128], [255, 255, 255, 0]]], np.uint8)
    multiplied = np.array([[[100, 50, 0, 128], [0, 0, 0, 0]]], np.uint8)
    for name, page, kind in (("0", straight, "unassalpha"), ("1", multiplied, "assocalpha")):
        path = tmp_path / "in" / f"{name}.tif"
        tifffile.imwrite(path, page, photometric="rgb", extrasamples=[kind], metadata=None)
    convert(tmp_path / "in", tmp_path / "laid.zarr", background=(0, 0, 255))
    laid = open_store(tmp_path / "laid.zarr").frames.array.tolist()
    assert laid == [[[[100, 50, 127], [0, 0, 255]]]] * 2
    message = "1.tif has channels of the kind premultiplied, "
    with pytest.raises(FrameFormatError, match=re.escape(message)):
        convert(tmp_path / "in", tmp_path / "mixed.zarr")


def geotiff(page: np.ndarray, nodata: str | None = "-9999", **options: object) -> bytes:
    tags = [] if nodata is None else [(42113, "s", 0, nodata, True)]
    chosen = {"photometric": "minisblack", "metadata": None, "extratags": tags, **options}
    return tiff_bytes(page, **chosen)


@pytest.mark.parametrize(
    ("dtype", "text", "options", "nodata", "notes"),
    [
        ("float32", "-9999", {}, -9999, ()),
        ("float32", "nan", {}, np.nan, ()),
        ("float32", "-3.40282346638529e+38", {}, float(np.finfo("float32").min), ()),
        ("float32", "0.1", {}, float(np.float32(0.1)), ()),
        ("int16", " -32768\0", {}, -32768, ()),
        ("uint8", "0", {"photometric": "miniswhite"}, 255, ()),
        ("uint8", "-9999", {}, None, ("GDAL_NODATA -9999",)),
        ("uint8", "none", {}, None, ("GDAL_NODATA none",)),
    ],
)
def test_gdal_nodata(
    dtype: str, text: str, options: dict, nodata: float | None, notes: tuple[str, ...]
) -> None:
    """A value that a pixel can have, as the decoded frame has it; others are only reported."""
    data = geotiff(np.ones((4, 5), dtype), text, **options)
    info = frame_decoder("a.tif").inspect(data, "a.tif", COLOUR)
    assert (repr(info.nodata), info.notes) == (repr(nodata and float(nodata)), notes)


def test_nodata_of_a_set(tmp_path: Path) -> None:
    """All files must agree, within a clip and between clips, or --nodata says it."""
    page = np.ones((4, 5), np.float32)
    for folder, name, text in (("a", "0", "-9999"), ("a", "1", "-9999.0"), ("b", "0", "-9999")):
        (tmp_path / "in" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / folder / f"{name}.tif").write_bytes(geotiff(page, text))
    convert(tmp_path / "in", tmp_path / "all.zarr")
    assert open_store(tmp_path / "all.zarr").meta.nodata == -9999
    with pytest.raises(ValueError, match="size, mode gray and background would mix the nodata"):
        convert(tmp_path / "in", tmp_path / "other.zarr", size=(2, 2))
    for place, text, said in (("a/1", "-1", "-1 for"), ("b/0", None, "no value for")):
        (tmp_path / "in" / f"{place}.tif").write_bytes(geotiff(page, text))
        message = f"{place}.tif has {said} no data, {tmp_path}/in/a/0.tif has -9999 for no data; "
        with pytest.raises(FrameFormatError, match=re.escape(message)):
            convert(tmp_path / "in", tmp_path / "other.zarr")
        convert(tmp_path / "in", tmp_path / "given.zarr", nodata=-1)
        assert open_store(tmp_path / "given.zarr").meta.nodata == -1
        assert compare(tmp_path / "given.zarr", tmp_path / "in") == []
        shutil.rmtree(tmp_path / "given.zarr")
        (tmp_path / "in" / f"{place}.tif").write_bytes(geotiff(page))


def sparse(data: bytes, kept: int) -> bytes:
    """A tiled file with all but its first tiles taken out, as GDAL's SPARSE_OK leaves them."""
    file = io.BytesIO(data)
    with tifffile.TiffFile(file, mode="r+") as tiff:
        for tag in (324, 325):
            values = tiff.pages[0].tags[tag].value
            tiff.pages[0].tags[tag].overwrite([*values[:kept], *[0] * (len(values) - kept)])
    return file.getvalue()


@pytest.mark.parametrize(("text", "fill"), [("7", 7), (None, 0)])
@pytest.mark.parametrize("kept", [0, 1])
def test_sparse_geotiff(text: str | None, fill: int, kept: int) -> None:
    """Tiles that were left out on purpose are no damage, but must be allowed."""
    page = picture(shape=(32, 32), dtype="uint16")
    data = sparse(geotiff(page, text, tile=(16, 16)), kept)
    message = (
        f"a.tif (page 0) is sparse: {4 - kept} of its 4 strips or tiles are left out; allow_missing"
    )
    with pytest.raises(SourceError, match=re.escape(message)):
        one(data, "a.tif")
    expected = np.full_like(page, fill)
    expected[:16, : 16 * kept] = page[:16, : 16 * kept]
    allowed = ReadOptions(allow_missing_chunks=True)
    assert np.array_equal(one(data, "a.tif", allowed)[..., 0], expected)


def test_what_a_tiff_says_and_is_not_applied() -> None:
    """Scales, calibrations, ranges and curves are reported; values stay as stored."""
    xml = (
        '<GDALMetadata><Item name="OFFSET" sample="0" role="offset">273.15</Item>'
        '<Item name="SCALE" sample="0" role="scale">0.01</Item></GDALMetadata>'
    )
    tags = [(42112, "s", 0, xml, True), (281, "H", 1, 4095, True), (274, "H", 1, 6, True)]
    page = picture(shape=(4, 5), dtype="uint16")
    calibrated = {"imagej": True, "metadata": {"c0": -32768.0, "c1": 1.0}}
    white = {"photometric": "miniswhite", "metadata": None}
    for frame, options, notes in (
        (
            page,
            {"extratags": tags, "metadata": None},
            ("orientation 6", "MaxSampleValue", "GDAL offset 273.15", "GDAL scale 0.01"),
        ),
        (page, calibrated, ("ImageJ c0 -32768.0", "ImageJ c1 1.0")),
        (page.astype(np.int16), white, ("0 is white",)),
        (page.astype(np.float32), white, ("0 is white",)),
    ):
        data = tiff_bytes(frame, **options)
        assert frame_decoder("a.tif").inspect(data, "a.tif", COLOUR).notes == notes
        assert np.array_equal(one(data, "a.tif")[..., 0], frame)


def test_stacks_and_single_pages(tmp_path: Path) -> None:
    """A stack is a clip; single pages are frames of their folder's."""
    pages = picture(shape=(5, 20, 28), dtype="uint16")
    (tmp_path / "in" / "single").mkdir(parents=True)
    for name in ("walk", "run_2"):
        tifffile.imwrite(tmp_path / "in" / f"{name}.tif", pages, photometric="minisblack")
    for index in range(3):
        tifffile.imwrite(tmp_path / "in" / "single" / f"t{index}.tif", pages[index])
    assert np.array_equal(several(tmp_path / "in" / "walk.tif")[..., 0], pages)
    report = convert(tmp_path / "in", tmp_path / "clips.zarr")
    assert (report.clips, report.frames) == (3, 13)
    store = open_store(tmp_path / "clips.zarr")
    assert store.meta.clips.names == ("run_2", "walk", "single")
    expected = np.concatenate([pages, pages, pages[:3]])
    assert np.array_equal(store.frames.array[..., 0], expected)
    assert store.source_files(np.array([0, 9, 12])) == ["run_2.tif", "walk.tif", "single/t2.tif"]
    tifffile.imwrite(tmp_path / "in" / "single" / "t3.tif", pages, photometric="minisblack")
    with pytest.raises(SourceError, match=r"t3\.tif holds 5 pages in a place for single frames"):
        convert(tmp_path / "in", tmp_path / "again.zarr")


@pytest.mark.parametrize("suffix", ["tif", "gif"])
def test_a_stack_before_single_frames(tmp_path: Path, suffix: str) -> None:
    """Regression: each single frame became a clip of its own, without a window and a word."""
    (tmp_path / "in").mkdir()
    pages = [Image.fromarray(page) for page in picture(shape=(6, 20, 28))]
    stack = tmp_path / "in" / f"0.{suffix}"
    pages[0].save(stack, save_all=True, append_images=pages[1:3])
    for number, page in enumerate(pages[3:], start=1):
        page.save(tmp_path / "in" / f"{number}.{suffix}")
    message = (
        f"{tmp_path / 'in'} holds 3 files of a single frame, such as 1.{suffix}, beside "
        f"0.{suffix} of several; choose one kind by include= or exclude="
    )
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(tmp_path / "in", tmp_path / "clips.zarr")
    convert(tmp_path / "in", tmp_path / "clips.zarr", exclude=stack.name)
    clips = open_store(tmp_path / "clips.zarr").meta.clips
    assert (clips.names, clips.num_frames) == (("in",), 3)
    for number in (2, 3):
        (tmp_path / "in" / f"{number}.{suffix}").unlink()
    # A stack among stacks may have a single page.
    report = convert(tmp_path / "in", tmp_path / "stacks.zarr")
    assert (report.clips, report.frames) == (2, 4)


def test_stacks_beside_folders_of_their_names(tmp_path: Path) -> None:
    """Clip names stay unique."""
    pages = picture(shape=(3, 20, 28))
    (tmp_path / "in" / "s1").mkdir(parents=True)
    for name in ("s1.tif", "s2.tif"):
        tifffile.imwrite(tmp_path / "in" / name, pages, photometric="minisblack")
    tifffile.imwrite(tmp_path / "in" / "s1" / "0.tif", pages[0])
    convert(tmp_path / "in", tmp_path / "clips.zarr")
    assert open_store(tmp_path / "clips.zarr").meta.clips.names == ("s1.tif", "s2", "s1")


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "float32", "bool"])
@pytest.mark.parametrize("shape", [(3, 20, 28), (3, 20, 28, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(tmp_path: Path, dtype: str, shape: tuple[int, ...], order: str) -> None:
    """Axes t, y, x and perhaps c, in either order of bytes and of elements."""
    array = np.asarray((picture(shape=shape) > 99).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "b.npz", x=array)
    expected = array * np.uint8(255) if dtype == "bool" else array
    for name in ("a.npy", "b.npz"):
        assert np.array_equal(several(tmp_path / name), expected.reshape(3, 20, 28, -1))


def test_arrays_of_one_frame_are_frames(tmp_path: Path) -> None:
    """Files of (y, x) are frames by their numbers."""
    for number in (2, 10, 1):
        np.save(tmp_path / f"f{number}.npy", np.full((4, 5), number, np.uint16))
    convert(tmp_path, tmp_path.parent / "clips.zarr")
    frames = open_store(tmp_path.parent / "clips.zarr").frames.array
    assert frames[:, 0, 0, 0].tolist() == [1, 2, 10]


def test_archives_of_several_arrays(tmp_path: Path) -> None:
    """Which there are is said; --stream chooses."""
    np.savez(tmp_path / "a.npz", left=np.zeros((2, 4, 5), np.uint8), right=np.ones((3, 4, 5), "u1"))
    with pytest.raises(SourceError, match=r"a\.npz holds several arrays \(0: left, 1: right\)"):
        several(tmp_path / "a.npz")
    assert several(tmp_path / "a.npz", ReadOptions(stream=1)).min() == 1
    with pytest.raises(SourceError, match=r"a\.npz has no stream 2; it holds 0: left, 1: right"):
        several(tmp_path / "a.npz", ReadOptions(stream=2))


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


JPEG = saved(Image.fromarray(picture(shape=(64, 64, 3))), "jpeg")
PICTURE = Image.fromarray(picture())
TIFF = tiff_bytes(picture(shape=(3, 20, 28)), photometric="minisblack")
LZW = tiff_bytes(picture(shape=(20, 28)), compression="lzw")
MOVIE = npy(np.zeros((3, 4, 5), np.uint8))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jpg", b"", "a.jpg is empty; expected a JPEG file, copy it again or remove it"),
        ("a.jpg", saved(Image.fromarray(picture()), "png"), "a PNG file, not a JPEG file; rename"),
        ("a.png", JPEG, "a.png is a JPEG file, not a PNG file; rename it to .jpg"),
        ("a.tif", JPEG, "a.tif is a JPEG file, not a TIFF file; rename it to .jpg"),
        ("a.gif", JPEG, "a.gif is a JPEG file, not a GIF file; rename it to .jpg"),
        ("a.npy", JPEG, "a.npy is a JPEG file, not a NumPy file; rename it to .jpg"),
        ("a.npz", MOVIE, "a.npz is a NumPy file, not a NumPy archive file; rename it to .npy"),
        ("a.jpg", b"\xff\xd8\xff\xe0rubbish", "a.jpg has a damaged JPEG header ("),
        ("a.jpg", JPEG[: len(JPEG) // 2], "a.jpg cannot be decoded (image file is truncated"),
        (
            "a.jpg",
            saved(Image.fromarray(picture(shape=(20, 28, 4)), "CMYK"), "jpeg"),
            "a.jpg has CMYK pixels; expected gray, RGB or RGBA, convert it first",
        ),
        ("a.bmp", saved(Image.fromarray(picture()), "bmp")[:-100], "a.bmp cannot be decoded ("),
        ("a.webp", saved(Image.fromarray(picture()), "webp")[:-9], "a.webp is cut short at"),
        ("a.gif", gif_bytes()[: len(gif_bytes()) // 2], "a.gif is cut short at"),
        ("a.tif", TIFF[:-200], "a.tif is cut short: its 2068 bytes end before its directories do"),
        ("a.tif", saved(PICTURE, "tiff")[:-9], "a.tif (page 0) has pixels that are missing or lie"),
        ("a.tif", TIFF[:12], "a.tif is cut short: its 12 bytes end before its directories do"),
        ("a.tif", LZW[:9] + b"\xff" * 9 + LZW[18:], "a.tif is"),
        (
            "a.tif",
            tiff_bytes(picture(shape=(20, 28)).astype(np.int64)),
            "a.tif has 1 samples of int64, MINISBLACK, for a pixel; expected gray, RGB or palette",
        ),
        ("a.npy", MOVIE[:-1], "a.npy is cut short: its array needs 60 bytes and has 59; copy it"),
        (
            "a.npy",
            npy(np.zeros((3, 4, 5), int)),
            "a.npy holds int64 values; expected one of uint8, uint16",
        ),
        ("a.npy", npy(np.zeros(5, np.uint8)), "a.npy is an array of shape (5,); expected (t, y, x"),
        ("a.npy", npy(np.zeros((1, 2, 3, 5), "u1")), "a.npy has the shape (1, 2, 3, 5), which may"),
        ("a.npy", npy(np.array([[{}]])), "a.npy holds Python object values; expected one of"),
        ("a.npz", npz(x=MOVIE)[:-30], "a.npz is a damaged archive ("),
        ("a.npz", npz(x=MOVIE[:-5]), "a.npz is cut short: its array needs 60 bytes and has 55"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    """One line with the file, what was found, what was expected, what to do."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(message)) as caught:
        convert(tmp_path / name, tmp_path / "clips.zarr")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_pages_of_several_axes(tmp_path: Path) -> None:
    """Neither channels nor depth are taken for time, unless the axes are stated."""
    path = tmp_path / "a.tif"
    pages = picture(shape=(5, 20, 28), dtype="uint16")
    for array, metadata in (
        (np.stack([pages, pages], axis=1), {"axes": "TCYX"}),
        (pages[:3], {"axes": "CYX"}),
        (pages, {"axes": "ZYX"}),
    ):
        tifffile.imwrite(path, array, imagej=True, metadata=metadata)
        with pytest.raises(
            SourceError, match=r"a\.tif has the axes .*[CZ] \d, Y 20, X 28; expected"
        ):
            several(path)
    stated = ReadOptions(axes="tyx")
    for axes, options in (("TYX", COLOUR), ("ZYX", stated), ("CYX", stated)):
        tifffile.imwrite(path, pages, imagej=True, metadata={"axes": axes})
        assert np.array_equal(several(path, options)[..., 0], pages)
    tifffile.imwrite(path, pages, ome=True, metadata={"axes": "ZYX"})
    advice = "a.tif has the axes Z 5, Y 20, X 28; expected pages along one axis of time, save each"
    with pytest.raises(SourceError, match=f"{re.escape(advice)}.* or give axes='tyx' if they"):
        several(path)
    with pytest.raises(
        SourceError, match="axes='zyx' does not fit; expected tyx, by which its pag"
    ):
        several(path, ReadOptions(axes="zyx"))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        (
            "a.tif",
            tiff_bytes(picture(shape=(4, 2, 8, 9)), imagej=True),
            "a.tif has the axes Z 4, C",
        ),
        ("a.npy", npy(np.zeros((4, 8, 9), np.int64)), "a.npy holds int64 values; expected one of"),
        ("a.tif", b"II*\0" + bytes(30), "a.tif holds no image; remove it"),
    ],
)
def test_the_reason_in_a_file_comes_before_its_name(
    tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    """One recording without a number in its name, if refused anyway, is no matter of names."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(reason)):
        convert(tmp_path / "in", tmp_path / "clips.zarr")


def pnm(kind: int, pixels: np.ndarray, largest: int) -> bytes:
    """A file as the standard describes it, with comments in its header."""
    height, width = pixels.shape[:2]
    head = f"P{kind}\n# made by hand\n{width} {height}"
    head += "\n" if kind in (1, 4) else f" # so many\n{largest}\n"
    if kind == 4:
        body = np.packbits(pixels, axis=1).tobytes()
    elif kind < 4:
        body = "\n".join(map(str, pixels.ravel().tolist())).encode() + b"\n"
    else:
        body = pixels.astype(">u2" if largest > 255 else "u1").tobytes()
    return head.encode() + body


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("kind", "largest", "mode", "notes"),
    [
        (1, 1, "gray, 1 bits", ()),
        (2, 255, "gray, 8 bits", ()),
        (3, 65535, "RGB, 16 bits", ()),
        (4, 1, "gray, 1 bits", ()),
        (5, 255, "gray, 8 bits", ()),
        (5, 100, "gray, 7 bits", ("largest value 100",)),
        (5, 1, "gray, 1 bits", ("largest value 1",)),
        (5, 4095, "gray, 12 bits", ("largest value 4095",)),
        (6, 65535, "RGB, 16 bits", ()),
    ],
)
def test_pnm(kind: int, largest: int, mode: str, notes: tuple[str, ...], packed: bool) -> None:
    """Values as they are counted; only one bit is scaled, and turned, for 1 is black there."""
    shape = (13, 21, 3) if kind in (3, 6) else (13, 21)
    values = np.random.default_rng(kind).integers(0, largest, shape, endpoint=True)
    data = pnm(kind, values, largest)
    data = gzip.compress(data, mtime=0) if packed else data
    name = "a.PGM.gz" if packed else "a.pnm"
    info = frame_decoder(name).inspect(data[:4096], name, COLOUR)
    assert (info.mode, info.notes) == (mode, notes)
    found = one(data, name)
    assert found.dtype == (np.uint16 if largest > 255 else np.uint8)
    expected = (1 - values) * 255 if kind in (1, 4) else values
    assert np.array_equal(found, expected.reshape(13, 21, -1))
    if not packed and largest in (1, 255) and not notes:
        with Image.open(io.BytesIO(data)) as image:
            assert np.array_equal(found[..., 0], np.asarray(image.convert("L")))


PGM = pnm(5, np.full((4, 5), 100), 255)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.pgm", PGM[:-1], "a.pgm is cut short: its pixels need 20 bytes and have 19; copy it"),
        ("a.pgm", PGM * 2, "a.pgm goes on behind its pixels, as files of several pictures do"),
        ("a.pgm", PGM[:9], "a.pgm has a damaged PNM header; repair or remove it"),
        ("a.pgm", PGM.replace(b"255", b"99"), "a.pgm has the value 100 above the largest of its"),
        ("a.pgm", PGM.replace(b"255", b"0"), "a.pgm has 0 for the largest value; repair or"),
        ("a.pgm", PGM.replace(b"255", b"65536"), "a.pgm has a damaged PNM header; repair or"),
        ("a.ppm", JPEG, "a.ppm is a JPEG file, not a PNM file; rename it to .jpg"),
        ("a.png", PGM, "a.png is a PNM file, not a PNG file; rename it to .pnm"),
        ("a.pgm", pnm(2, np.ones((4, 5), int), 9)[:-2], "a.pgm has 19 values where 20 numbers are"),
        ("a.pgm", pnm(2, np.ones((4, 5), int), 9)[:-2] + b"x", "a.pgm has 20 values where 20 num"),
        ("a.pbm", pnm(1, np.full((4, 5), 2), 1), "a.pbm has 20 values where 20 numbers are"),
        ("a.pgm.gz", gzip.compress(PGM, mtime=0)[:-9], "a.pgm.gz is a damaged gzip file ("),
        (
            "a.pgm.gz",
            gzip.compress(PGM, mtime=0)[:-8] + bytes(8),
            "a.pgm.gz is a damaged gzip file (Error -3",
        ),
        (
            "a.pgm.gz",
            gzip.compress(PGM + bytes(10**7), mtime=0),
            "a.pgm.gz holds more bytes than its header",
        ),
    ],
)
def test_pnm_that_is_refused(name: str, data: bytes, message: str) -> None:
    """What is wrong, and never more in memory than the header promises."""
    with pytest.raises(SourceError, match=re.escape(message)):
        one(data, name)


def test_pgm_frames_in_a_folder(tmp_path: Path) -> None:
    """Names with two suffixes are ordered by their numbers, too."""
    (tmp_path / "in").mkdir()
    for number in (2, 10, 1):
        page = gzip.compress(pnm(5, np.full((4, 5), number), 4095))
        (tmp_path / "in" / f"r{number}.pgm.gz").write_bytes(page)
    convert(tmp_path / "in", tmp_path / "clips.zarr")
    assert open_store(tmp_path / "clips.zarr").frames.array[:, 0, 0, 0].tolist() == [1, 2, 10]


def hdf5(frame: np.ndarray) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as opened:
        opened["a"] = frame[np.newaxis]
    return file.getvalue()


@pytest.mark.parametrize("form", ["frame.{:04}", "{}", "f{}.dat", "f{}.png"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "video"])
def test_a_stated_kind_whatever_the_suffix(tmp_path: Path, kind: str, form: str) -> None:
    """Files of any name are read as what they are said to be, in the order of their numbers."""
    write = {"pnm": lambda p: pnm(5, p, 255), "npy": npy, "hdf5": hdf5}.get(
        kind, lambda p: saved(Image.fromarray(p), kind)
    )
    (tmp_path / "in").mkdir()
    for number in (2, 10, 1):
        data = write(np.full((16, 16), 20 * number, np.uint8))
        (tmp_path / "in" / form.format(number)).write_bytes(data)
    report = convert(tmp_path / "in", tmp_path / "clips.zarr", kind=kind)
    assert report.frames == 3
    frames = open_store(tmp_path / "clips.zarr").frames.array
    assert frames[:, 0, 0, 0].tolist() == [20, 40, 200]
    assert compare(tmp_path / "clips.zarr", tmp_path / "in") == []
    single = tmp_path / "in" / form.format(10)
    assert convert(single, tmp_path / "one.zarr", kind=kind).frames == 1


def test_kinds_that_are_wrong(tmp_path: Path) -> None:
    """One that is unknown, one that a file is not, and none where one is needed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_bytes(PGM)
    with pytest.raises(ValueError, match=r"kind must be one of png, jpeg, .*, video, got 'dicom'"):
        convert(tmp_path / "in", tmp_path / "clips.zarr", kind="dicom")
    with pytest.raises(SourceError, match="1 is a PNM file, not a TIFF file"):
        convert(tmp_path / "in", tmp_path / "clips.zarr", kind="tiff")
    for source in ("in", "in/1"):
        with pytest.raises(SourceError, match=r"or state what .* by kind="):
            convert(tmp_path / source, tmp_path / "clips.zarr")


@pytest.mark.parametrize("name", ["a.jpg", "a.bmp", "a.webp", "a.gif", "a.tif", "a.npy", "a.png"])
def test_bombs_are_refused_by_their_header(name: str, tmp_path: Path) -> None:
    """The size is held against the limit before anything is decoded."""
    kind = {"jpg": "jpeg", "tif": "tiff"}.get(name[2:], name[2:])
    image = Image.fromarray(picture(shape=(20, 28)))
    data = npy(np.zeros((2, 20, 28), "u1")) if kind == "npy" else saved(image, kind)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(f"{name} claims 20x28 pixels, more than the ")):
        convert(tmp_path / name, tmp_path / "clips.zarr", max_pixels=20 * 28 - 1)
    convert(tmp_path / name, tmp_path / "clips.zarr", max_pixels=20 * 28)


def test_damage_in_one_page_leaves_the_others(tmp_path: Path) -> None:
    """With --on-error gap only the damaged page of a stack is left out."""
    pages = picture(shape=(5, 20, 28))
    data = bytearray(tiff_bytes(pages, photometric="minisblack", compression="zlib"))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as tiff:
        place = tiff.pages[2].dataoffsets[0]
    data[place : place + 40] = b"\xff" * 40
    (tmp_path / "a.tif").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.tif \(page 2\) is a damaged TIFF file"):
        convert(tmp_path / "a.tif", tmp_path / "clips.zarr")
    report = convert(tmp_path / "a.tif", tmp_path / "clips.zarr", on_error="gap")
    assert [damaged.number for damaged in report.damaged] == [2]
    frames = open_store(tmp_path / "clips.zarr").frames.array[..., 0]
    assert np.array_equal(frames, pages[[0, 1, 3, 4]])


def test_real_microscopy(real_data: Path, tmp_path: Path) -> None:
    """Names with several dots and numbers; the pixels that Pillow reads."""
    source = real_data / "trackpy_foam_tif"
    convert(source, tmp_path / "clips.zarr")
    frames = open_store(tmp_path / "clips.zarr").frames.array
    for number, frame in enumerate(frames, start=1):
        with Image.open(source / f"V1.75f3.125000{number}.tif") as image:
            assert np.array_equal(frame[..., 0], np.asarray(image))
