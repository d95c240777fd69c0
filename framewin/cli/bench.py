"""`framewin bench`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framewin.cli.output import import_tensorflow_quietly, show_progress, usage_errors
from framewin.errors import StoreError, shown

if TYPE_CHECKING:
    from framewin.bench.run import Stage
    from framewin.schema import Progress

UNITS = {"turns": "turns"}
"""What is counted in a stage, where it is not ways."""


def bench(
    context: typer.Context,
    store: Annotated[Path, typer.Argument(help="Store made by framewin convert.")],
    frames: Annotated[
        Path | None, typer.Option(help="Folder of the PNG files that the store was made from.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per batch.")] = 8,
    input_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every way takes.")] = 11,
    step_ms: Annotated[
        float, typer.Option(help="Training step between which batches are waited for.")
    ] = 11.0,
    only: Annotated[
        list[str] | None, typer.Option(help="A way to measure beside the base; repeatable.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out first batch, memory and table of caches.")
    ] = False,
    chart: Annotated[Path | None, typer.Option(help="Bar chart to write, .png.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Measure, on this machine and store, framewin beside what else makes the same batches."""
    from framewin.bench.run import BenchSettings, run_bench
    from framewin.bench.ways import WAYS
    from framewin.process import keep_freed_memory

    with usage_errors():
        if chart is not None and chart.suffix.lower() != ".png":
            raise ValueError(f"--chart must end in .png, got {chart}")
        if chart is not None and (chart.exists() or not chart.absolute().parent.is_dir()):
            raise ValueError(f"--chart must be a new file in a folder that is there, got {chart}")
        if chart is not None and not os.access(chart.absolute().parent, os.W_OK):
            raise StoreError(f"{chart} cannot be written to; choose another --chart")
        settings = BenchSettings(
            batch_size=batch_size,
            input_frames=input_frames,
            predict_frames=predict_frames,
            rounds=rounds,
            step_ms=step_ms,
            only=tuple(only or ()),
            quick=quick,
        )
    keep_freed_memory()
    # Of the worker processes too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with usage_errors(), _stages(quiet) as stage:
        report = run_bench(
            store, frames=frames, settings=settings, stage=stage, ways=context.obj or WAYS
        )
    print(report.to_json() if json else "\n".join(map(shown, report.lines())))
    if chart is not None:
        from framewin.bench.report import write_chart

        write_chart(chart, report)


@contextmanager
def _stages(quiet: bool) -> Iterator[Stage]:
    """A progress bar for each stage, the last one gone when the next begins."""
    with ExitStack() as bars:

        def begin(what: str) -> Progress | None:
            bars.close()
            if "tensorflow" not in sys.modules and find_spec("tensorflow"):
                import_tensorflow_quietly()
            return bars.enter_context(show_progress(what, quiet, unit=UNITS.get(what, "ways")))

        yield begin
