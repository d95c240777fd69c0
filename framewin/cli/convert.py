"""`framewin convert`."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framewin.cli.options import options_of
from framewin.cli.output import (
    SHOWN,
    in_flags,
    print_rows,
    show_progress,
    size_text,
    stopping,
    usage_errors,
)
from framewin.conversion.settings import RUN, ConvertSettings, RunSettings
from framewin.errors import SourceAccessError, SourceChangedError, SourceError
from framewin.settings import taken

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from framewin.conversion.audit import Audit, ClipAudit
    from framewin.conversion.estimate import Estimate
    from framewin.conversion.run import ConvertReport
    from framewin.sources.listing import Skipped

DAMAGE_EXIT = 3
SHOWN_CLIPS = 10

run_option = partial(typer.Option, rich_help_panel=RUN)


@options_of(ConvertSettings, RunSettings)
def convert(
    source: Annotated[
        Path, typer.Argument(help="Folder of frames, or of clips at any depth; or one clip file.")
    ],
    dest: Annotated[Path, typer.Argument(help="Store to make, clips.zarr or clips.h5.")],
    dask: Annotated[
        str | None,
        run_option(metavar="ADDRESS", help="Dask scheduler whose workers convert instead."),
    ] = None,
    dry_run: Annotated[
        bool,
        run_option("--dry-run", help="Read and check all files, try compression, write nothing."),
    ] = False,
    as_json: Annotated[bool, run_option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, run_option("--quiet", help="Show no progress.")] = False,
    **options: Any,
) -> None:
    """Pack a folder of frames or clips into a store."""
    from framewin.conversion.plan import plan_conversion
    from framewin.conversion.run import run

    with usage_errors():
        settings, how = taken(ConvertSettings, options), taken(RunSettings, options)
    if dask is not None and how.workers is not None:
        raise typer.BadParameter("give either --dask or --workers", param_hint="'--dask'")
    if dry_run:
        _dry_run(source, dest, settings, as_json=as_json, quiet=quiet)
        return
    with stopping(partial(_kept, dest)), _executor(dask) as executor:
        with usage_errors():
            plan = plan_conversion(source, dest, settings)
        with show_progress("converting", quiet) as progress:
            try:
                report = run(plan, replace(how, executor=executor, progress=progress))
            except SourceError as exc:
                # The first of perhaps many.
                if not isinstance(exc, SourceChangedError | SourceAccessError):
                    exc.args = (f"{exc}; --dry-run checks all files",)
                raise
    if as_json:
        print(json.dumps(asdict(report), indent=2, default=str))
    else:
        print_rows(_with_flags(_report_rows(report)))
    if report.damaged:
        raise typer.Exit(DAMAGE_EXIT)


def _executor(dask: str | None) -> AbstractContextManager[Executor | None]:
    """That of a Dask cluster, if its address is given."""
    if dask is None:
        return nullcontext()
    from framewin.conversion.dask_client import dask_executor

    return dask_executor(dask)


def _kept(dest: Path) -> str:
    from framewin.stores.durable import partial_path

    place = partial_path(dest)
    rest = f"what is done is kept in {place}; repeat the command to go on, --restart begins anew"
    return rest if place.exists() else "nothing was kept"


def _dry_run(
    source: Path, dest: Path, settings: ConvertSettings, *, as_json: bool, quiet: bool
) -> None:
    """Print what a conversion would do, then what would stop it."""
    from framewin.conversion.audit import audit
    from framewin.conversion.estimate import estimate_layouts
    from framewin.conversion.plan import draft_conversion
    from framewin.conversion.read import sample

    with usage_errors():
        plan = draft_conversion(source, dest, settings, lenient=True)
    with show_progress("reading files", quiet) as progress:
        found = audit(plan, progress)
    layouts = estimate_layouts(
        plan.meta,
        partial(sample, plan),
        level=settings.level if settings.compression == "zstd" else None,
        chunk_frames=settings.chunk_frames,
    )
    if as_json:
        record = {**found.as_json(), "layouts": [asdict(layout) for layout in layouts]}
        print(json.dumps(record, indent=2))
    else:
        print_rows(_with_flags(_audit_rows(found)))
        _print_estimates(layouts)
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise SourceError(f"{found.problems[0]}{more}")
    if found.damaged:
        raise typer.Exit(DAMAGE_EXIT)


def _audit_rows(audit: Audit) -> list[tuple[str, str]]:
    from framewin.schema import listed

    clips = audit.clips
    shown = [
        ("", f"{clip.name}: {clip.frames:,} frames, {' to '.join(dict.fromkeys(ends))}")
        for clip, ends in ((clip, (clip.first, clip.last)) for clip in clips[:SHOWN_CLIPS])
    ]
    if len(clips) > SHOWN_CLIPS:
        shown.append(("", f"and {len(clips) - SHOWN_CLIPS} more"))
    gaps = [f"{clip.name} {gap.missing}" for clip in clips for gap in clip.gaps]
    missing = sum(gap.frames for clip in clips for gap in clip.gaps)
    equal = [
        f"{listed(files[1:], 2)} as {files[0]} in {clip.name}"
        for clip in clips
        for files in clip.duplicates
    ]
    copies = sum(len(files) - 1 for clip in clips for files in clip.duplicates)
    rows = [
        ("would convert", f"{audit.source} to {audit.dest}"),
        ("clips", f"{len(clips):,}"),
        *shown,
        ("frames", f"{audit.frames:,}, {audit.step} apart"),
        ("frame", audit.frame_format),
        ("gaps", f"{len(gaps)}, {missing} frames: {listed(gaps)}" if gaps else "none"),
        (
            "duplicates",
            f"{copies} kept, of the same bytes as another file: {listed(equal)}"
            if equal
            else "none",
        ),
        *((name, _counted(clips, name)) for name in ("formats", "sizes", "modes")),
        ("not applied", _counted(clips, "notes") or "nothing"),
        ("bytes in", size_text(audit.bytes_in)),
        ("bytes out", f"{size_text(audit.bytes_out)} at most"),
        ("skipped", _skipped(audit.skipped)),
        *([("windows", audit.hint)] if audit.hint else []),
    ]
    if len(audit.problems) > 1:
        rows += _listed("would stop", f"{len(audit.problems)} reasons", audit.problems)
    if audit.damaged:
        rows += _listed("damaged", f"{len(audit.damaged)} left out", audit.damaged)
    return rows


def _listed(label: str, what: str, lines: list[str]) -> list[tuple[str, str]]:
    """The first of many lines, and how many more there are."""
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [(label, what), *(("", line) for line in [*lines[:SHOWN], *more])]


def _with_flags(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = [each.name for each in fields(ConvertSettings)]
    return [(label, in_flags(text, names)) for label, text in rows]


def _counted(clips: list[ClipAudit], name: str) -> str:
    """How many files there are of each kind, over all clips."""
    total: Counter[str] = Counter()
    for clip in clips:
        total.update(getattr(clip, name))
    return "; ".join(f"{count:,} {kind}" for kind, count in total.most_common())


def _report_rows(report: ConvertReport) -> list[tuple[str, str]]:
    rows = [
        ("store", str(report.dest)),
        ("clips", f"{report.clips:,}"),
        ("frames", f"{report.frames:,}"),
        ("frame", str(report.frame_format)),
        ("gaps", _gaps(report)),
        *(
            [("resumed", f"{report.resumed_frames:,} frames were there already")]
            * bool(report.resumed_frames)
        ),
        ("bytes in", size_text(report.bytes_in)),
        ("bytes out", f"{size_text(report.bytes_out)}, {_layout(report)}"),
        ("time", f"{report.seconds:.2f} s, {report.frames_per_second:,.0f} frames per second"),
        ("skipped", _skipped(report.skipped)),
        *[("not applied", "; ".join(report.notes))] * bool(report.notes),
        *([("windows", report.hint)] if report.hint else []),
    ]
    if report.damaged:
        reasons = [damaged.reason for damaged in report.damaged]
        rows += _listed("damaged", f"{len(reasons)} left out", reasons)
    return rows


def _layout(report: ConvertReport) -> str:
    frames = report.layout.chunk_frames
    chunks = f"chunks of {frames} frame{'s' if frames > 1 else ''}"
    if not report.layout.compressed:
        return f"{report.layout}, {chunks}"
    return f"{report.layout}, {chunks}, {report.compression_ratio:.2f} times smaller than pixels"


def _print_estimates(layouts: list[Estimate]) -> None:
    """What each compression would bring, on a sample of frames."""
    print()
    print(f"{'compression':14} {'bytes out':>12} {'ratio':>6} {'read, one core':>16} {'write':>12}")
    for found in layouts:
        read, write = (
            f"{size_text(rate)}/s"
            for rate in (found.read_bytes_per_second, found.write_bytes_per_second)
        )
        name = str(found.layout) if found.layout.compressed else "none"
        size = size_text(found.num_bytes)
        print(f"{name:14} {size:>12} {found.ratio:6.2f} {read:>16} {write:>12}")


def _gaps(report: ConvertReport) -> str:
    from framewin.conversion.audit import shown_step
    from framewin.schema import listed, shown_number

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
    return f"{len(gaps)} in {len(clips)} clips{steps}: {listed(shown)}"


def _skipped(skipped: dict[str, Skipped]) -> str:
    if not skipped:
        return "nothing"
    return "; ".join(
        f"{entry.count} {reason} ({entry.example}{', ...' if entry.count > 1 else ''})"
        for reason, entry in skipped.items()
    )
