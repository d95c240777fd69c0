"""Forecasts of a trained run for new frames, as PNG files, a store or a video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path, PurePosixPath

import numpy as np
from imagecodecs import png_encode

from framewin.errors import SourceError, StoreError, TrainingError, one_line
from framewin.forecast.frames_in_turn import FramesInTurn, input_windows, open_frames
from framewin.forecast.runs import Run, load_run
from framewin.forecast.scoring import as_stored, forecast
from framewin.optional import require
from framewin.pictures.figures import Example, Painter, marked
from framewin.pictures.playback import VIDEO_SUFFIXES, true_pace, write_video
from framewin.remote import refuse_url
from framewin.scaling import shown_values
from framewin.schema import MICROSECONDS, ClipTable, Int64Array, Progress, StoreMeta
from framewin.stores import SUFFIXES, durable, format_module
from framewin.stores.layout import Layout
from framewin.windows.spec import Runs

PNG_DTYPES = ("uint8", "uint16")
PNG_CHANNELS = 4
NUMBER_DIGITS = 6


@dataclass(frozen=True, slots=True)
class PredictReport:
    """What was forecast, and where it is."""

    out: Path
    kind: str
    """PNG files, a store, or a video."""
    forecasts: int
    frames: int
    """Predicted frames of all forecasts."""
    clips: int
    """Clips with a forecast."""
    too_short: tuple[str, ...]
    """Clips that end with too few frames in a row."""


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """Which frames are predicted from which."""

    clips: ClipTable
    """Of the source."""
    starts: Int64Array
    """Row of each forecast's first input, (n,), increasing."""
    offsets: Int64Array
    """From there to its inputs, (T_in,)."""
    names: tuple[str, ...]
    """Of each forecast: its clip, and of several for one clip the frame they start from."""
    numbers: Int64Array
    """Of the predicted frames, (n, T_out)."""
    step: int
    """Between the numbers of neighbouring predicted frames."""
    too_short: tuple[str, ...]

    def file_names(self, forecast: int) -> list[str]:
        """Names of a forecast's frames."""
        return [_file_name(number, self.clips.time_unit) for number in self.numbers[forecast]]


@dataclass(frozen=True, slots=True, eq=False)
class _Forecast:
    """Frames of one forecast, stored dtype."""

    inputs: np.ndarray
    """(T_in, H, W, C)."""
    frames: np.ndarray
    """(T_out, H, W, C)."""


def predict(
    run: str | Path | Run,
    source: str | Path,
    *,
    out: str | Path,
    every: bool = False,
    horizon: int | None = None,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> PredictReport:
    """Forecast the frames that come next.

    Args:
        run: The run folder of `framewin train`, or what `load_run` gave.
        source: A store; or a folder of frames or clips, or a clip file, which is read as
            `framewin convert` would, with the settings of the store that was trained on.
        out: What to make, by its suffix: a store (`.zarr`, `.h5`, `.hdf5`), a video (`.gif`,
            `.mp4`) of inputs and forecasts one after the other, or else a folder of PNG files,
            `CLIP/frame_NUMBER.png`.
        every: Forecast from every window of inputs, `CLIP/from_NUMBER/...`, where NUMBER is the
            last input's; by default from the last inputs of each clip.
        horizon: Frames to forecast, more than trained for by feeding forecasts back.
        batch_size: Windows per forecast.
        progress: Called with (forecasts done, forecasts in all).

    Returns:
        Counts, and what was left out.

    Raises:
        SourceError: No clip is long enough, or frames cannot be read.
        StoreError: `out` exists, or a run or store cannot be read.
        TrainingError: Frames of another format than the model takes, or a forecast that is not
            a number.
        ValueError: A number out of its range.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    if horizon is not None and horizon < 1:
        raise ValueError(f"horizon must be >= 1, got {horizon}")
    run = run if isinstance(run, Run) else load_run(run)
    refuse_url(out, "forecasts are written to this machine, give --out a path")
    refuse_url(source, "framewin fetch brings it to this machine, to forecast from it there")
    out = Path(out)
    kind, write = _writer(out, run)
    frames = open_frames(Path(source), run.store)
    if frames.meta.frame_format != run.frame_format:
        raise TrainingError(
            f"{source} has frames of {frames.meta.frame_format}, the model of {run.folder} takes "
            f"{run.frame_format}"
        )
    task = _task(frames.meta.clips, run, horizon, every=every)
    if len(task.starts) == 0:
        needed = int(task.offsets[-1]) + 1
        raise SourceError(f"no clip of {source} ends with {needed} frames in a row, as inputs span")
    made = _forecasts(run, frames, task, horizon, batch_size, progress)
    try:
        with durable.building(out) as site:
            site.begin({"forecast": str(out)}, resume=False)
            write(site, frames.meta, task, made)
    except OSError as exc:
        raise StoreError(f"{out} cannot be written: {one_line(exc)}") from exc
    return PredictReport(
        out,
        kind,
        len(task.starts),
        task.numbers.size,
        len(np.unique(task.clips.clips_of(task.starts))),
        task.too_short,
    )


_Write = Callable[[durable.Site, StoreMeta, _Task, Iterator[_Forecast]], None]


def _writer(out: Path, run: Run) -> tuple[str, _Write]:
    """What `out` shall be, and what writes it."""
    durable.check_new(out, "--out")
    suffix, form = out.suffix.lower(), run.frame_format
    if suffix in SUFFIXES:
        return "store", _write_store
    if suffix in VIDEO_SUFFIXES:
        if suffix == ".mp4":
            require("av", extra="video")
        return "video", _write_video
    if form.dtype not in PNG_DTYPES or form.channels > PNG_CHANNELS:
        raise StoreError(
            f"PNG files cannot hold frames of {form}; choose a store, such as {out}.zarr"
        )
    return "PNG files", _write_pngs


def _task(clips: ClipTable, run: Run, horizon: int | None, *, every: bool) -> _Task:
    settings = run.settings
    offsets = np.arange(settings.input_frames) * settings.frame_step
    span = int(offsets[-1]) + 1
    runs = Runs.of(clips)
    owners = clips.segment_clips
    last = np.append(owners[1:] != owners[:-1], True)
    too_short = tuple(clips.names[i] for i in owners[last & (runs.lengths < span)])
    if every:
        pieces = [
            np.arange(first, first + length - span + 1, settings.window_stride)
            for first, length in zip(runs.starts.tolist(), runs.lengths.tolist(), strict=True)
        ]
        starts = np.concatenate(pieces)
    else:
        ends = (runs.starts + runs.lengths)[last & (runs.lengths >= span)]
        starts = ends - span
    step = clips.step * settings.frame_step
    ahead = settings.lead_gap + np.arange(1, (horizon or settings.predict_frames) + 1)
    origins = clips.frame_numbers(starts + offsets[-1])
    names = [_safe(clips.names[i]) for i in clips.clips_of(starts)]
    if every:
        labels = [_label(number, clips.time_unit) for number in origins]
        names = [f"{name}/from_{label}" for name, label in zip(names, labels, strict=True)]
    return _Task(
        clips,
        starts,
        offsets,
        tuple(names),
        origins[:, np.newaxis] + step * ahead,
        step,
        too_short,
    )


def _forecasts(
    run: Run,
    frames: FramesInTurn,
    task: _Task,
    horizon: int | None,
    batch_size: int,
    progress: Progress | None,
) -> Iterator[_Forecast]:
    """All forecasts, computed in batches as they are asked for."""
    nodata = frames.meta.nodata
    model = run.forecaster(horizon, nodata=nodata)
    windows = input_windows(frames, task.starts, task.offsets)
    done = 0
    while batch := list(islice(windows, batch_size)):
        inputs = np.stack(batch)
        predicted = forecast(model, inputs)
        lost = ~np.isfinite(predicted).all(axis=(1, 2, 3, 4))
        if lost.any():
            raise TrainingError(
                f"the forecast for {task.names[done + int(np.argmax(lost))]} is not a number; "
                "train again with a lower learning rate"
            )
        for seen, made in zip(inputs, as_stored(predicted, inputs, nodata), strict=True):
            yield _Forecast(seen, made)
        done += len(batch)
        if progress is not None:
            progress(done, len(task.starts))


def _write_pngs(
    site: durable.Site, meta: StoreMeta, task: _Task, made: Iterator[_Forecast]
) -> None:
    for place, each in enumerate(made):
        folder = site.store / task.names[place]
        folder.mkdir(parents=True)
        for name, frame in zip(task.file_names(place), each.frames, strict=True):
            pixels = frame[..., 0] if frame.shape[-1] == 1 else frame
            (folder / name).write_bytes(png_encode(np.ascontiguousarray(pixels)))


def _write_store(
    site: durable.Site, meta: StoreMeta, task: _Task, made: Iterator[_Forecast]
) -> None:
    clips = ClipTable.from_frame_numbers(
        list(task.names), list(task.numbers), step=task.step, time_unit=task.clips.time_unit
    )
    kept = {name: meta.conversion.get(name) for name in ("packing", "coordinates", "alpha")}
    made_as = {"forecast": True, **{name: found for name, found in kept.items() if found}}
    new = StoreMeta(meta.frame_format, clips, meta.nodata, made_as)
    # No file holds a frame that was forecast.
    files = [("", [""] * len(numbers)) for numbers in task.numbers]
    writer = format_module(site.dest).Writer(site, new, files, Layout())
    try:
        writer.write_metadata()
        for row, frames in _in_chunks((each.frames for each in made), writer.chunk_frames):
            writer.write(row, frames)
        writer.sync()
        writer.finish()
    finally:
        writer.close()


def _in_chunks(pieces: Iterator[np.ndarray], size: int) -> Iterator[tuple[int, np.ndarray]]:
    """First row and frames of blocks of whole chunks, the last one excepted."""
    row, held = 0, next(pieces)
    for piece in pieces:
        held = np.concatenate([held, piece])
        whole = len(held) // size * size
        if whole:
            yield row, np.ascontiguousarray(held[:whole])
            row, held = row + whole, held[whole:]
    if len(held):
        yield row, np.ascontiguousarray(held)


def _write_video(
    site: durable.Site, meta: StoreMeta, task: _Task, made: Iterator[_Forecast]
) -> None:
    step = task.step // task.clips.step
    pace = true_pace(task.clips, meta.conversion, step)
    write_video(
        site.store, _pictures(made, meta.nodata), pace.seconds, suffix=site.dest.suffix.lower()
    )


def _pictures(made: Iterator[_Forecast], nodata: float | None) -> Iterator[np.ndarray]:
    """Inputs, then forecast frames with a line under them."""
    for each in made:
        inputs, frames = (shown_values(part, nodata) for part in (each.inputs, each.frames))
        show = Painter(Example("", inputs, frames, frames), full_size=True)
        yield from (show(frame) for frame in inputs)
        yield from (marked(show(frame)) for frame in frames)


def _safe(name: str) -> str:
    """A clip's name, if it is a place below the folder that is made."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise SourceError(f"a clip is called {name!r}, which is no place for its forecast")
    return name


def _file_name(number: int, time_unit: str | None) -> str:
    label = _label(number, time_unit)
    return f"{label}.png" if time_unit else f"frame_{label}.png"


def _label(number: int, time_unit: str | None) -> str:
    """A frame number with leading zeros, or a time that sorts as text and names a file."""
    if time_unit is None:
        return f"{int(number):0{NUMBER_DIGITS}d}"
    microseconds = int(number) * MICROSECONDS[time_unit]
    stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    text = stamp.strftime("%Y%m%dT%H%M%S")
    return text if time_unit == "s" else f"{text}_{stamp.microsecond:06d}"
