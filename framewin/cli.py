"""The command line: results on stdout, progress on stderr.

Exit codes: 0 done, 1 a `FramewinError` (one line), 2 wrong usage, 130 stopped by Ctrl-C. Heavy
packages are imported inside the commands, so that `framewin --help` is quick.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import framewin
from framewin.errors import FramewinError
from framewin.optional import require

if TYPE_CHECKING:
    from framewin.conversion.plan import ConversionPlan, Progress
    from framewin.conversion.run import ConvertReport
    from framewin.forecast.train import TrainReport
    from framewin.schema import ClipTable, Gap
    from framewin.sources.listing import Skipped
    from framewin.stores.info import StoreInfo
    from framewin.windows.spec import WindowSpec

LINE_SECONDS = 5.0
SHOWN_GAPS = 5
SHOWN_CLIPS = 10

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pack frame folders into mapped stores and train frame predictors from them.",
)


def main() -> None:
    """Entry point of the `framewin` command."""
    try:
        app()
    except FramewinError as exc:
        print(f"framewin: {exc}", file=sys.stderr)
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"framewin {framewin.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="Folder of PNG frames, or of clip folders.")],
    dest: Annotated[Path, typer.Argument(help="Store to make, clips.zarr or clips.h5.")],
    format: Annotated[
        str | None,
        typer.Option(help="zarr or hdf5.", show_default="what the suffix of DEST says"),
    ] = None,
    compression: Annotated[
        str, typer.Option(help="none (mapped, the fastest to read), zstd, lz4 or gzip.")
    ] = "none",
    level: Annotated[
        int | None, typer.Option(help="Of zstd, 1 to 22, or gzip, 1 to 9.", show_default="3, 5")
    ] = None,
    chunk_frames: Annotated[
        int | None,
        typer.Option(help="Frames of a chunk.", show_default="1 MiB raw, 64 KiB compressed"),
    ] = None,
    nodata: Annotated[
        float | None, typer.Option(help="Pixel value that stands for no data, or nan.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Decoding threads; by default one per core.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Read all headers, try compression, write nothing."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Pack a folder of PNG frames into a store."""
    from framewin.conversion.plan import check_formats, plan_conversion
    from framewin.conversion.run import run
    from framewin.stores.codecs import Layout

    with _usage_errors():
        layout = Layout(compression, level, chunk_frames)
        plan = plan_conversion(source, dest, format=format, layout=layout, nodata=nodata)
    with _progress("reading headers" if dry_run else "converting", quiet) as progress:
        if dry_run:
            check_formats(plan, progress)
        else:
            report = run(plan, workers=workers, progress=progress)
    _print_rows(_plan_rows(plan) if dry_run else _report_rows(report))
    if dry_run:
        _print_estimates(plan)


@app.command()
def info(
    path: Annotated[Path, typer.Argument(help="Store, or file or folder with an array.")],
    input_frames: Annotated[int, typer.Option(min=1, help="Of a window, to count them.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    frame_step: Annotated[int, typer.Option(min=1, help="Of a window.")] = 1,
    window_stride: Annotated[int, typer.Option(min=1, help="Between windows.")] = 1,
    lead_gap: Annotated[int, typer.Option(min=0, help="Of a window.")] = 0,
    array: Annotated[
        str | None, typer.Option(help="Array with the frames, in files that others wrote.")
    ] = None,
    axes: Annotated[
        str | None, typer.Option(help="Its axes, a letter each: t time, y, x, c channel.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what a store holds; reads no frame."""
    from json import dumps

    from framewin.stores import open_store
    from framewin.stores.array_store import open_array
    from framewin.stores.info import describe
    from framewin.windows.spec import Runs, WindowIndex, WindowSpec

    foreign = array is not None or axes is not None
    options = {"array": array, "axes": axes, "cache_bytes": 0}
    store = open_array(path, **options) if foreign else open_store(path)
    found = describe(store)
    spec = WindowSpec(input_frames, predict_frames, frame_step, window_stride, lead_gap)
    windows = len(WindowIndex(spec, Runs.of(store.meta.clips)))
    if json:
        print(dumps({**found.as_json(), "windows": windows}, indent=2))
    else:
        _print_rows(_info_rows(found, store.meta.clips, spec, windows))


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="Store made by framewin convert.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Reading threads; by default one per core.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Check every byte of a store against its checksums; exit code 1 if any is damaged."""
    from framewin.stores.verify import verify as run_verify

    with _progress("verifying", quiet) as progress:
        report = run_verify(path, workers=workers, progress=progress)
    rate = report.num_bytes / report.seconds
    _print_rows(
        [
            ("store", str(report.path)),
            ("frames", f"{report.frames:,}"),
            ("checked", f"{_size(report.num_bytes)} in {report.seconds:.2f} s, {_size(rate)}/s"),
            ("damage", f"{len(report.damage)} places" if report.damage else "none"),
        ]
    )
    for line in report.damage:
        print(f"framewin: {line}", file=sys.stderr)
    if report.damage:
        raise typer.Exit(1)


@app.command()
def train(
    store: Annotated[Path, typer.Argument(help="Store made by framewin convert.")],
    input_frames: Annotated[int, typer.Option(min=1, help="Frames the predictor sees.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Frames it predicts.")] = 5,
    frame_step: Annotated[
        int, typer.Option(min=1, help="Distance between neighbouring frames of a window.")
    ] = 1,
    window_stride: Annotated[
        int, typer.Option(min=1, help="Distance between the starts of neighbouring windows.")
    ] = 1,
    lead_gap: Annotated[
        int, typer.Option(min=0, help="Frames skipped between inputs and predictions.")
    ] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training windows.")] = 12,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per step.")] = 8,
    learning_rate: Annotated[float, typer.Option(help="Peak of the schedule.")] = 2e-3,
    filters: Annotated[int, typer.Option(min=1, help="Channels of each ConvLSTM layer.")] = 32,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the split, the order and the initial weights.")
    ] = 0,
    validation_share: Annotated[
        float, typer.Option(help="Share of the clips, or of a single clip's frames, held back.")
    ] = 0.2,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make.", show_default="runs/STORE-TIME")
    ] = None,
) -> None:
    """Train a ConvLSTM on a store, score it beside the last frame, and show its forecasts."""
    from framewin.process import keep_freed_memory

    keep_freed_memory()
    _import_tensorflow_quietly()
    from framewin.forecast.train import TrainSettings
    from framewin.forecast.train import train as run_training

    with _usage_errors():
        settings = TrainSettings(
            input_frames=input_frames,
            predict_frames=predict_frames,
            frame_step=frame_step,
            window_stride=window_stride,
            lead_gap=lead_gap,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            filters=filters,
            seed=seed,
            validation_share=validation_share,
        )
    stamp = time.strftime("%Y%m%d-%H%M%S")
    report = run_training(store, out or Path("runs", f"{store.stem}-{stamp}"), settings)
    _print_training(report)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """A bad value is wrong usage."""
    try:
        yield
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None


def _import_tensorflow_quietly() -> None:
    """Import TensorFlow without its notes about missing GPUs and CPU features.

    Some of them are written before its log level can be set, straight to file descriptor 2.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        require("tensorflow", extra="tensorflow")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _progress(what: str, quiet: bool) -> Iterator[Progress | None]:
    """A bar on a terminal, a line every few seconds elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _progress_bar(what) as update:
            yield update
    else:
        yield _progress_lines(what)


@contextmanager
def _progress_bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} frames/s"),
        TimeRemainingColumn(),
    )
    started = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, rate="-")

        def update(done: int, total: int) -> None:
            rate = f"{done / (time.perf_counter() - started):,.0f}"
            bar.update(task, completed=done, total=total, rate=rate)

        yield update


def _progress_lines(what: str) -> Progress:
    started = last = time.perf_counter()

    def update(done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= LINE_SECONDS:
            last = now
            rate = done / (now - started)
            left = (total - done) / rate
            print(
                f"{what}: {done:,} of {total:,} frames, {rate:,.0f} frames/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    return update


def _plan_rows(plan: ConversionPlan) -> list[tuple[str, str]]:
    clips = plan.meta.clips
    lengths = clips.clip_lengths.tolist()
    shown = [
        ("", f"{name}: {length} frames, {listed.file_names[0]} to {listed.file_names[-1]}")
        for name, length, listed in list(zip(clips.names, lengths, plan.listed, strict=True))[
            :SHOWN_CLIPS
        ]
    ]
    if len(lengths) > SHOWN_CLIPS:
        shown.append(("", f"and {len(lengths) - SHOWN_CLIPS} more"))
    return [
        ("would convert", f"{plan.source} to {plan.dest}"),
        ("clips", f"{len(lengths):,}"),
        *shown,
        ("frames", f"{clips.num_frames:,}"),
        ("frame", str(plan.meta.frame_format)),
        ("gaps", _gaps(clips.gaps(), clips.step)),
        ("bytes out", f"{_size(plan.needed_bytes)} at most"),
        ("skipped", _skipped(plan.skipped)),
    ]


def _report_rows(report: ConvertReport) -> list[tuple[str, str]]:
    return [
        ("store", str(report.dest)),
        ("clips", f"{report.clips:,}"),
        ("frames", f"{report.frames:,}"),
        ("frame", str(report.frame_format)),
        ("gaps", _gaps(report.gaps, report.step)),
        ("bytes in", _size(report.bytes_in)),
        ("bytes out", f"{_size(report.bytes_out)}, {_layout(report)}"),
        ("time", f"{report.seconds:.2f} s, {report.frames_per_second:,.0f} frames per second"),
        ("skipped", _skipped(report.skipped)),
    ]


def _layout(report: ConvertReport) -> str:
    frames = report.layout.chunk_frames or 1
    chunks = f"chunks of {frames} frame{'s' if frames > 1 else ''}"
    if not report.layout.compressed:
        return f"{report.layout}, {chunks}"
    return f"{report.layout}, {chunks}, {report.compression_ratio:.2f} times smaller than pixels"


def _print_estimates(plan: ConversionPlan) -> None:
    """What each compression would bring, on a sample of frames."""
    from framewin.conversion.estimate import estimate_layouts
    from framewin.conversion.run import read_frames

    estimates = estimate_layouts(
        plan.meta,
        lambda begin, end: read_frames(plan, begin, end),
        level=plan.layout.level if plan.layout.compression == "zstd" else None,
        chunk_frames=plan.layout.chunk_frames,
    )
    print()
    print(f"{'compression':14} {'bytes out':>12} {'ratio':>6} {'read, one core':>16} {'write':>12}")
    for found in estimates:
        read, write = (
            f"{_size(rate)}/s"
            for rate in (found.read_bytes_per_second, found.write_bytes_per_second)
        )
        name = str(found.layout) if found.layout.compressed else "none"
        size = _size(found.num_bytes)
        print(f"{name:14} {size:>12} {found.ratio:6.2f} {read:>16} {write:>12}")


def _info_rows(
    found: StoreInfo, clips: ClipTable, spec: WindowSpec, windows: int
) -> list[tuple[str, str]]:
    lengths = clips.clip_lengths
    shown = [
        ("", f"{name}: {lengths[place]} frames")
        for place, name in enumerate(clips.names[:SHOWN_CLIPS])
    ]
    if found.clips > SHOWN_CLIPS:
        shown.append(("", f"and {found.clips - SHOWN_CLIPS:,} more"))
    layout = "as its library reads it"
    if found.compression is not None:
        level = "" if found.level is None else f" level {found.level}"
        name = "raw" if found.compression == "none" else f"{found.compression}{level}"
        layout = f"{name}, chunks of {found.chunk_frames}"
    return [
        ("store", f"{found.path}, {found.format}"),
        ("clips", f"{found.clips:,}"),
        *shown,
        ("frames", f"{found.frames:,}"),
        ("frame", f"{found.height}x{found.width}x{found.channels} {found.dtype}"),
        ("gaps", f"{found.gaps:,}; the longest run without one has {found.longest_run:,} frames"),
        ("no data", "every value is data" if found.nodata is None else f"{found.nodata:g}"),
        ("layout", layout),
        ("bytes", f"{_size(found.bytes)}, pixels {_size(found.pixel_bytes)}, "
                  f"ratio {found.compression_ratio:.2f}"),
        ("windows", f"{windows:,} of {spec.input_frames}+{spec.predict_frames} frames, "
                    f"{spec.window_stride} apart"),
    ]  # fmt: skip


def _print_training(report: TrainReport) -> None:
    from framewin.forecast import train as files

    evaluation = report.evaluation
    print()
    print(f"{evaluation.windows} validation windows, {'model':>15} {'last frame':>12}")
    for label, name, digits in (
        ("MSE, unit scale", "mse", 5),
        ("MAE, unit scale", "mae", 5),
        ("PSNR of mean MSE, dB", "psnr_of_mean_mse", 2),
    ):
        values = (getattr(scores, name) for scores in (evaluation.model, evaluation.last_frame))
        model, last_frame = (f"{value:.{digits}f}" for value in values)
        print(f"{label:24} {model:>15} {last_frame:>12}")
    leads = zip(
        evaluation.model.mse_per_lead_time, evaluation.last_frame.mse_per_lead_time, strict=True
    )
    for lead, (model_mse, last_mse) in enumerate(leads, start=1):
        print(f"{f'  MSE of frame +{lead}':24} {model_mse:15.5f} {last_mse:12.5f}")
    print()
    windows = ", ".join(f"{count} {name}" for name, count in report.windows.items())
    kept = f"epoch {report.best_epoch} of {report.epochs}"
    if report.best_epoch == 0:
        kept = f"none of {report.epochs} epochs beat the last frame; kept the untrained model"
    _print_rows(
        [
            ("skill", f"{evaluation.skill:.1%} of the last frame's MSE removed"),
            ("windows", f"{windows}; {report.split}"),
            ("model", f"{report.parameters:,} weights, {kept}"),
            ("time", f"{report.seconds:.0f} s"),
            ("forecast", f"{report.run / files.GIF_FILE}"),
            ("", f"{report.run / files.SHEET_FILE}"),
            ("run folder", f"{report.run}"),
            ("curves", f"tensorboard --logdir {report.run / files.LOG_FOLDER}"),
        ]
    )


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:{width}}  {value}".rstrip())


def _gaps(gaps: list[Gap], step: int) -> str:
    steps = "" if step == 1 else f", frame numbers {step} apart"
    if not gaps:
        return f"none{steps}"
    clips = Counter(gap.clip for gap in gaps)
    shown = ", ".join(f"{gap.clip} {gap.before} -> {gap.after}" for gap in gaps[:SHOWN_GAPS])
    more = f", and {len(gaps) - SHOWN_GAPS} more" if len(gaps) > SHOWN_GAPS else ""
    return f"{len(gaps)} in {len(clips)} clips{steps}: {shown}{more}"


def _skipped(skipped: dict[str, Skipped]) -> str:
    if not skipped:
        return "nothing"
    return "; ".join(
        f"{entry.count} {reason} ({entry.example}{', ...' if entry.count > 1 else ''})"
        for reason, entry in skipped.items()
    )


def _size(num_bytes: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.1f} {unit}"
    return f"{num_bytes:.0f} bytes"
