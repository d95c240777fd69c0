"""The command line: results on stdout, progress on stderr.

Exit codes: 0 done, 1 a `FramewinError` (one line), 2 wrong usage, 3 done but for damaged frames
that were left out, 130 stopped by Ctrl-C. Heavy packages are imported inside the commands, so
that `framewin --help` is quick.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import framewin
from framewin.errors import FramewinError, SourceError
from framewin.optional import require

if TYPE_CHECKING:
    from framewin.conversion.audit import Audit, ClipAudit
    from framewin.conversion.plan import Progress
    from framewin.conversion.run import ConvertReport
    from framewin.conversion.settings import ConvertSettings
    from framewin.forecast.train import TrainReport
    from framewin.sources.listing import Skipped

DAMAGE_EXIT = 3
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


class _Palette(Enum):
    color = "color"
    index = "index"


class _Mode(Enum):
    keep = "keep"
    gray = "gray"
    rgb = "rgb"


class _Fit(Enum):
    stretch = "stretch"
    pad = "pad"
    crop = "crop"


class _OnError(Enum):
    stop = "stop"
    gap = "gap"


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(help="Folder of frames, or of clips at any depth; or one clip file.")
    ],
    dest: Annotated[Path, typer.Argument(help="Store to make, for example clips.zarr.")],
    frame_regex: Annotated[
        str | None,
        typer.Option(help="Where a path has its groups (?P<frame>), (?P<time>), (?P<clip>)."),
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(help="strptime format of (?P<time>); by default ISO 8601.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Glob of paths below SOURCE to take; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Glob of paths below SOURCE to leave out; repeatable.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="Between frames: a number, or 5min; by default the usual.")
    ] = None,
    palette: Annotated[
        _Palette, typer.Option(help="Store colours, or keep indices as values.")
    ] = _Palette.color,
    mode: Annotated[_Mode, typer.Option(help="Colours of all frames.")] = _Mode.keep,
    drop_alpha: Annotated[
        bool, typer.Option("--drop-alpha", help="Leave out alpha that is opaque everywhere.")
    ] = False,
    background: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Lay transparent frames over a colour.")
    ] = None,
    crop: Annotated[
        str | None,
        typer.Option(metavar="TOP:BOTTOM,LEFT:RIGHT", help="Rows and columns to keep."),
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="HxW", help="Bring frames to a height and width.")
    ] = None,
    fit: Annotated[_Fit, typer.Option(help="How other proportions fit --size.")] = _Fit.stretch,
    on_error: Annotated[
        _OnError, typer.Option(help="At a damaged frame: stop, or leave a gap.")
    ] = _OnError.stop,
    max_pixels: Annotated[
        int, typer.Option(min=1, help="Refuse frames that claim more pixels.")
    ] = 2**28,
    stream: Annotated[
        int | None, typer.Option(min=0, help="Which stream, or array, of files with several.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Decoding threads; by default one per core.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check all files, write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Pack a folder of frames or clips into a store."""
    settings = _settings(
        frame_regex=frame_regex,
        time_format=time_format,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        step=step,
        palette=palette.value,
        mode=mode.value,
        drop_alpha=drop_alpha,
        background=_numbers("--background", background, r"(\d+),(\d+),(\d+)", "R,G,B"),
        crop=_numbers("--crop", crop, r"(\d+):(\d+),(\d+):(\d+)", "TOP:BOTTOM,LEFT:RIGHT"),
        size=_numbers("--size", size, r"(\d+)x(\d+)", "HxW"),
        fit=fit.value,
        on_error=on_error.value,
        max_pixels=max_pixels,
        stream=stream,
    )
    if dry_run:
        _dry_run(source, dest, settings, as_json=as_json, quiet=quiet)
        return
    from framewin.conversion.plan import plan_conversion
    from framewin.conversion.run import run

    plan = plan_conversion(source, dest, settings)
    with _progress("converting", quiet) as progress:
        report = run(plan, workers=workers, progress=progress)
    if as_json:
        print(json.dumps(asdict(report), indent=2, default=str))
    else:
        _print_rows(_report_rows(report))
    if report.damaged:
        raise typer.Exit(DAMAGE_EXIT)


def _settings(**options: Any) -> ConvertSettings:
    from framewin.conversion.settings import ConvertSettings

    try:
        return ConvertSettings(**options)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None


def _numbers(option: str, text: str | None, pattern: str, shape: str) -> tuple[int, ...] | None:
    """The numbers of an option such as 64x64."""
    if text is None:
        return None
    match = re.fullmatch(pattern, text.strip(), re.ASCII)
    if match is None:
        raise typer.BadParameter(f"expected {shape}, got {text!r}", param_hint=f"'{option}'")
    return tuple(int(number) for number in match.groups())


def _dry_run(
    source: Path, dest: Path, settings: ConvertSettings, *, as_json: bool, quiet: bool
) -> None:
    """Print what a conversion would do, then what would stop it."""
    from framewin.conversion.audit import audit
    from framewin.conversion.plan import draft_conversion

    plan = draft_conversion(source, dest, settings, lenient=True)
    with _progress("reading files", quiet) as progress:
        found = audit(plan, progress)
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        _print_rows(_audit_rows(found))
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise SourceError(f"{found.problems[0]}{more}")
    if found.damaged:
        raise typer.Exit(DAMAGE_EXIT)


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

    try:
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
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    report = run_training(store, out or Path("runs", f"{store.stem}-{stamp}"), settings)
    _print_training(report)


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


def _audit_rows(audit: Audit) -> list[tuple[str, str]]:
    clips = audit.clips
    shown = [
        ("", f"{clip.name}: {clip.frames:,} frames, {' to '.join(dict.fromkeys(ends))}")
        for clip, ends in ((clip, (clip.first, clip.last)) for clip in clips[:SHOWN_CLIPS])
    ]
    if len(clips) > SHOWN_CLIPS:
        shown.append(("", f"and {len(clips) - SHOWN_CLIPS} more"))
    gaps = [f"{clip.name} {gap.missing}" for clip in clips for gap in clip.gaps]
    missing = sum(gap.frames for clip in clips for gap in clip.gaps)
    equal = [f"{clip.name} {' = '.join(fs)}" for clip in clips for fs in clip.duplicates]
    rows = [
        ("would convert", f"{audit.source} to {audit.dest}"),
        ("clips", f"{len(clips):,}"),
        *shown,
        ("frames", f"{audit.frames:,}, {audit.step} apart"),
        ("frame", audit.frame_format),
        ("gaps", f"{len(gaps)}, {missing} frames: {_some(gaps)}" if gaps else "none"),
        ("duplicates", f"{len(equal)}, kept: {_some(equal)}" if equal else "none"),
        *((name, _counted(clips, name)) for name in ("formats", "sizes", "modes")),
        ("not applied", _counted(clips, "notes") or "nothing"),
        ("bytes in", _size(audit.bytes_in)),
        ("bytes out", f"{_size(audit.bytes_out)} at most"),
        ("skipped", _skipped(audit.skipped)),
    ]
    if audit.damaged:
        rows.append(("damaged", f"{len(audit.damaged)} left out: {audit.damaged[0]}"))
    return rows


def _counted(clips: list[ClipAudit], name: str) -> str:
    """How many files there are of each kind, over all clips."""
    total: Counter[str] = Counter()
    for clip in clips:
        total.update(getattr(clip, name))
    return "; ".join(f"{count:,} {kind}" for kind, count in total.most_common())


def _some(texts: list[str]) -> str:
    more = f", and {len(texts) - SHOWN_GAPS} more" if len(texts) > SHOWN_GAPS else ""
    return f"{', '.join(texts[:SHOWN_GAPS])}{more}"


def _report_rows(report: ConvertReport) -> list[tuple[str, str]]:
    rows = [
        ("store", str(report.dest)),
        ("clips", f"{report.clips:,}"),
        ("frames", f"{report.frames:,}"),
        ("frame", str(report.frame_format)),
        ("gaps", _gaps(report)),
        ("bytes in", _size(report.bytes_in)),
        ("bytes out", _size(report.bytes_out)),
        ("time", f"{report.seconds:.2f} s, {report.frames_per_second:,.0f} frames per second"),
        ("skipped", _skipped(report.skipped)),
    ]
    if report.damaged:
        rows.append(("damaged", f"{len(report.damaged)} left out"))
        rows += [("", damaged.reason) for damaged in report.damaged[:SHOWN_GAPS]]
        if len(report.damaged) > SHOWN_GAPS:
            rows.append(("", f"and {len(report.damaged) - SHOWN_GAPS} more"))
    return rows


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


def _gaps(report: ConvertReport) -> str:
    from framewin.conversion.audit import shown_number, shown_step

    gaps, unit = report.gaps, report.time_unit
    steps = f", frame numbers {report.step} apart" if report.step > 1 else ""
    steps = f", frames {shown_step(report.step, unit)} apart" if unit else steps
    if not gaps:
        return f"none{steps}"
    clips = Counter(gap.clip for gap in gaps)
    shown = [
        f"{gap.clip} {shown_number(gap.before, unit)} -> {shown_number(gap.after, unit)}"
        for gap in gaps
    ]
    return f"{len(gaps)} in {len(clips)} clips{steps}: {_some(shown)}"


def _skipped(skipped: dict[str, Skipped]) -> str:
    if not skipped:
        return "nothing"
    return "; ".join(
        f"{entry.count} {reason} ({entry.example}{', ...' if entry.count > 1 else ''})"
        for reason, entry in skipped.items()
    )


def _size(num_bytes: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.1f} {unit}"
    return f"{num_bytes} bytes"
