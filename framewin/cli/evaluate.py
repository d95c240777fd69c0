"""`framewin evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framewin.cli.output import (
    CmapOption,
    ModelOption,
    ThemeOption,
    VmaxOption,
    VminOption,
    import_tensorflow_quietly,
    print_rows,
    show_progress,
    usage_errors,
)

if TYPE_CHECKING:
    from framewin.forecast.evaluate import EvaluationReport


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder made by framewin train.")],
    store: Annotated[
        str | None,
        typer.Option(
            help="Another store, or its URL, used whole.", show_default="the one trained on"
        ),
    ] = None,
    part: Annotated[
        str, typer.Option(help="Part of the run's split: test or validation.")
    ] = "test",
    thresholds: Annotated[
        str | None,
        typer.Option(help="Pixel values as stored, by commas, for CSI, POD, FAR and FSS."),
    ] = None,
    fss_window: Annotated[
        int, typer.Option(min=1, help="Pixels of the neighbourhood of FSS, odd.")
    ] = 5,
    data_range: Annotated[
        str | None,
        typer.Option(
            help="LOW:HIGH, pixel values as stored that PSNR and SSIM refer to.",
            show_default="all of uint8 and uint16, else those trained on",
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="Frames to forecast.", show_default="as many as trained for"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to make.", show_default="RUN/evaluation")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per forecast.")] = 8,
    model: ModelOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    figures: Annotated[
        str | None,
        typer.Option(
            help="pdf or svg: charts and sheets for papers, too.", show_default="PNG alone"
        ),
    ] = None,
    cmap: CmapOption = None,
    vmin: VminOption = None,
    vmax: VmaxOption = None,
    theme: ThemeOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Score a run beside baselines on windows that it never saw, and write a report."""
    with usage_errors():
        values = _numbers(thresholds, "--thresholds", ",")
        limits = None if data_range is None else _range(data_range)
    import_tensorflow_quietly()
    from framewin.forecast.evaluate import evaluate as run_evaluation
    from framewin.forecast.runs import load_run
    from framewin.pictures.figures import Look

    with usage_errors(), show_progress("scoring", quiet, unit="windows") as progress:
        report = run_evaluation(
            load_run(run, model),
            store=store,
            part=part,
            thresholds=values,
            fss_window=fss_window,
            data_range=limits,
            horizon=horizon,
            out=out,
            batch_size=batch_size,
            seed=seed,
            figures=figures,
            look=Look(cmap, vmin, vmax, theme),
            progress=progress,
        )
    _print(report)


def _numbers(text: str | None, option: str, separator: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in (text or "").split(separator) if part or text)
    except ValueError:
        raise ValueError(
            f"{option} must be numbers with {separator!r} between, got {text!r}"
        ) from None


def _range(text: str) -> tuple[float, float]:
    found = _numbers(text, "--data-range", ":")
    if len(found) != 2:
        raise ValueError(f"--data-range must be LOW:HIGH, got {text!r}")
    return found[0], found[1]


def _print(report: EvaluationReport) -> None:
    from framewin.forecast.evaluate import REPORT_FILE
    from framewin.forecast.report import lead_table, text_tables

    for table in [*text_tables(report), lead_table(report)]:
        _print_table(table)
        print()
    low, high = report.data_range.low, report.data_range.high
    print_rows(
        [
            ("skill", str(report.skill)),
            ("", f"bootstrap over {report.skill.groups} {report.skill.of}"),
            ("windows", f"{report.windows:,} from {report.clips:,} clips, {report.part}"),
            ("data range", f"{low:g} to {high:g}, {report.data_range.source}"),
            *(("note", note) for note in report.notes),
            ("report", str(report.out / REPORT_FILE)),
        ]
    )


def _print_table(table: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for first, *rest in table:
        cells = [f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([f"{first:{widths[0]}}", *cells]).rstrip())
