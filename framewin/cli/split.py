"""`framewin split`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from framewin.cli.output import print_rows, usage_errors
from framewin.remote import refuse_url

SHOWN_DUPLICATES = 5


def split(
    path: Annotated[str, typer.Argument(help="Store made by framewin convert, or its URL.")],
    part: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=SHARE|GLOB|FILE",
            help="A part: its share, its clips, or a file that names them; repeatable.",
        ),
    ] = ["train=0.8", "validation=0.1", "test=0.1"],  # noqa: B006 - typer never changes it
    by: Annotated[str, typer.Option(help="clip: whole clips; time: cut every clip.")] = "clip",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Chooses which clips go where, of shares; default 0.")
    ] = None,
    input_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    frame_step: Annotated[int, typer.Option(min=1, help="Of a window.")] = 1,
    window_stride: Annotated[int, typer.Option(min=1, help="Between windows.")] = 1,
    lead_gap: Annotated[int, typer.Option(min=0, help="Of a window.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default STORE.split.json.")
    ] = None,
) -> None:
    """Split a store into parts that share no frame, and keep the split in a file beside it."""
    from framewin.dataset import FrameWindowDataset
    from framewin.leaks import split_report
    from framewin.splitting import split_path
    from framewin.stores.durable import check_new

    with usage_errors():
        dataset = FrameWindowDataset(
            path,
            input_frames=input_frames,
            predict_frames=predict_frames,
            frame_step=frame_step,
            window_stride=window_stride,
            lead_gap=lead_gap,
        )
        choices = _choices(part)
        drawn = by == "clip" and all(isinstance(choice, float) for choice in choices.values())
        if seed is not None and not drawn:
            raise ValueError("--seed chooses clips for shares by clip, nothing else; leave it out")
        parts = dataset.split(choices, by=by, seed=seed or 0)  # type: ignore[arg-type]
    place = split_path(dataset.path) if out is None else out
    refuse_url(place, "name a file of this machine for the split")
    check_new(place, "--out")
    report = split_report(parts)
    written = parts.save(place)
    nearest = [distance for distance in report.nearest_frames.values() if distance is not None]
    print_rows(
        [
            ("split", f"{written}, by {by}"),
            *((name, f"{count:,} windows") for name, count in report.windows.items()),
            ("shared", f"{sum(report.shared_frames.values())} frames"),
            ("nearest", f"{min(nearest)} frames apart" if nearest else "no clip in two parts"),
            ("equal", f"{report.duplicates} pairs of frames in two parts have equal pixels"),
            *(("", " = ".join(pair.frames)) for pair in report.examples[:SHOWN_DUPLICATES]),
        ]
    )


def _choices(texts: list[str]) -> dict[str, Any]:
    choices: dict[str, Any] = {}
    for name, choice in map(_part, texts):
        if name in choices:
            raise ValueError(f"--part {name} is given twice; give it once, with a glob or a file")
        choices[name] = choice
    return choices


def _part(text: str) -> tuple[str, Any]:
    name, separator, choice = text.partition("=")
    if not (name and separator and choice):
        raise ValueError(f"--part must be NAME=SHARE, NAME=GLOB or NAME=FILE, got {text!r}")
    try:
        return name, float(choice)
    except ValueError:
        return name, Path(choice) if Path(choice).is_file() else choice
