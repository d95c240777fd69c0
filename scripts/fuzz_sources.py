"""Decode mutated files of every kind; prints what became of them, or dies of the bug it looks for.

python scripts/fuzz_sources.py --seed 1 --count 20000 FOLDER...

Takes the files below the folders, or, without any, small ones that it makes of each kind; videos
only with `--kind .mkv` and the like. A file that takes more than five seconds, a signal, or any
error but SourceError ends the run.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import random
import struct
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from framewin.errors import SourceError
from framewin.sources import CLIP_SUFFIXES, SOURCES, clip_decoder, frame_decoder, suffix_of
from framewin.sources.info import ReadOptions

LARGEST_FILE_BYTES = 60_000
MAX_PIXELS = 2**22
SECONDS = 5
VIDEO_CODECS = {
    ".mp4": ("libx264", "mpeg4"),
    ".mov": ("libx264", "mjpeg"),
    ".avi": ("mpeg4", "mjpeg"),
    ".mkv": ("ffv1", "libx264"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--kind", help="only files of this suffix, such as .png")
    arguments = parser.parse_args()
    faulthandler.enable()
    rng = random.Random(arguments.seed)
    if arguments.folders:
        originals = found(arguments.folders)
    else:
        originals = made_videos() if arguments.kind in VIDEO_CODECS else made()
    originals = [entry for entry in originals if arguments.kind in (None, entry[0])]
    outcomes: Counter[bool] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.count):
            suffix, data = rng.choice(originals)
            mutant = mutated(data, rng)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            outcomes[survives(suffix, mutant, Path(folder, f"mutated{suffix}"))] += 1
            faulthandler.cancel_dump_traceback_later()
    print(f"{arguments.count} mutated, {outcomes[True]} decoded, {outcomes[False]} refused")


def found(folders: list[Path]) -> list[tuple[str, bytes]]:
    """Suffix and bytes of every file that is not too large."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [(suffix_of(path.name), path.read_bytes()) for path in paths]
    return [(s, data) for s, data in files if s in SOURCES and len(data) < LARGEST_FILE_BYTES]


def made() -> list[tuple[str, bytes]]:
    """One or two small files of each kind but video."""
    y, x = np.mgrid[:24, :32]
    gray = (x * 5 + y * 3).astype(np.uint8)
    pictures = [Image.fromarray(np.stack([gray + 9 * i, gray, gray // 2], -1)) for i in range(4)]
    files = []

    def save(suffix: str, image: Image.Image, **options: object) -> None:
        file = io.BytesIO()
        image.save(file, **options)
        files.append((suffix, file.getvalue()))

    for kind in ("jpeg", "bmp", "webp"):
        save(f".{kind}", pictures[0], format=kind)
    save(".bmp", pictures[0].quantize(16), format="bmp")
    for kind, suffix in (("gif", ".gif"), ("webp", ".webp"), ("png", ".apng")):
        save(suffix, pictures[0], format=kind, save_all=True, append_images=pictures[1:])
    save(".png", pictures[0].quantize(16), format="png")
    for options in ({}, {"compression": "zlib"}, {"compression": "lzw", "rowsperstrip": 5}):
        file = io.BytesIO()
        tifffile.imwrite(file, np.stack([gray, gray + 1]).astype(np.uint16), **options)
        files.append((".tif", file.getvalue()))
    file = io.BytesIO()
    np.save(file, np.stack([gray, gray]))
    files.append((".npy", file.getvalue()))
    file = io.BytesIO()
    np.savez_compressed(file, frames=np.stack([gray, gray]))
    files.append((".npz", file.getvalue()))
    return files


def made_videos() -> list[tuple[str, bytes]]:
    """A dozen frames in each of the usual codecs."""
    import av

    files = []
    with tempfile.TemporaryDirectory() as folder:
        for suffix, codecs in VIDEO_CODECS.items():
            for codec in codecs:
                path = Path(folder, f"{codec}{suffix}")
                with av.open(str(path), "w") as container:
                    stream = container.add_stream(codec, rate=25)
                    stream.height, stream.width = 32, 48
                    stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
                    for index in range(12):
                        pixels = np.full((32, 48, 3), 20 * index, np.uint8)
                        pixels[index : index + 9, ::3] = 90
                        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                        container.mux(stream.encode(frame))
                    container.mux(stream.encode())
                files.append((suffix, path.read_bytes()))
    return files


def survives(suffix: str, data: bytes, path: Path) -> bool:
    """Whether the file decodes; SourceError is the only error it may give."""
    options = ReadOptions(max_pixels=MAX_PIXELS)
    try:
        if suffix in CLIP_SUFFIXES:
            return clip_survives(data, path, options)
        decoder = frame_decoder(path.name)
        info = decoder.inspect(data, path.name, options)
        if info.is_clip:
            return clip_survives(data, path, options)
        form = info.frame_format
        decoder.decode(data, np.empty(form.shape, form.dtype), path.name, options)
    except SourceError:
        return False
    finally:
        # Damage to the heap shows when memory is used.
        np.unique(np.arange(50))
    return True


def clip_survives(data: bytes, path: Path, options: ReadOptions) -> bool:
    path.write_bytes(data)
    info = clip_decoder(path.name).inspect_clip(str(path), options)
    frames = list(clip_decoder(path.name).read_clip(str(path), options))
    if any(isinstance(frame, SourceError) for frame in frames):
        return False
    assert len(frames) == info.frames
    assert all(frame.shape == info.frame_format.shape for frame in frames)
    assert all(frame.dtype == info.frame_format.dtype for frame in frames)
    return True


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few wrong bytes, and often a cut, a hole or an insertion; PNG checksums mostly mended."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    place, kind = rng.randrange(len(changed)), rng.random()
    if kind < 0.2:
        del changed[place:]
    elif kind < 0.3:
        del changed[place : place + rng.randint(1, 40)]
    elif kind < 0.4:
        changed[place:place] = rng.randbytes(rng.randint(1, 20))
    is_png = data.startswith(b"\x89PNG")
    return mended(changed) if is_png and rng.random() < 0.6 else bytes(changed)


def mended(data: bytearray) -> bytes:
    position = 8
    while position + 8 <= len(data):
        end = position + 8 + int.from_bytes(data[position : position + 4], "big")
        if end + 4 > len(data):
            break
        data[end : end + 4] = struct.pack(">I", zlib.crc32(data[position + 4 : end]))
        position = end + 4
    return bytes(data)


if __name__ == "__main__":
    main()
