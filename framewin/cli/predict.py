"""`framewin predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from framewin.cli.output import (
    ModelOption,
    import_tensorflow_quietly,
    print_rows,
    show_progress,
    usage_errors,
)


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder made by framewin train.")],
    source: Annotated[
        Path, typer.Argument(help="Store, or what framewin convert reads: a folder or a file.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="What to make: a store (.zarr, .h5), a video (.gif, .mp4), or a folder of PNG."
        ),
    ],
    every: Annotated[
        bool,
        typer.Option("--every", help="From every window, not only from each clip's last inputs."),
    ] = False,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="Frames to forecast.", show_default="as many as trained for"),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per forecast.")] = 8,
    model: ModelOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Forecast the frames that come next, as PNG files, a store or a video."""
    import_tensorflow_quietly()
    from framewin.forecast.predict import predict as run_prediction
    from framewin.forecast.runs import load_run

    with usage_errors(), show_progress("forecasting", quiet, unit="forecasts") as progress:
        report = run_prediction(
            load_run(run, model),
            source,
            out=out,
            every=every,
            horizon=horizon,
            batch_size=batch_size,
            progress=progress,
        )
    rows = [
        (report.kind, str(report.out)),
        ("forecasts", f"{report.forecasts:,} from {report.clips:,} clips"),
        ("frames", f"{report.frames:,}"),
    ]
    if report.too_short:
        from framewin.schema import listed

        rows.append(("too short", listed(list(report.too_short))))
    print_rows(rows)
