"""`framewin show`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from framewin.cli.output import (
    CmapOption,
    ThemeOption,
    VmaxOption,
    VminOption,
    print_rows,
    usage_errors,
)
from framewin.errors import StoreError
from framewin.remote import refuse_url


def show(
    path: Annotated[str, typer.Argument(help="Store made by framewin convert, or its URL.")],
    out: Annotated[
        Path, typer.Option(help="Picture to write, .png, .pdf, .svg, or .gif of a window.")
    ],
    window: Annotated[
        int | None, typer.Option(help="Which window; without it, some frames of every clip.")
    ] = None,
    input_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    frame_step: Annotated[int, typer.Option(min=1, help="Of a window.")] = 1,
    window_stride: Annotated[int, typer.Option(min=1, help="Between windows.")] = 1,
    lead_gap: Annotated[int, typer.Option(min=0, help="Of a window.")] = 0,
    cmap: CmapOption = None,
    vmin: VminOption = None,
    vmax: VmaxOption = None,
    theme: ThemeOption = None,
) -> None:
    """Draw a window with its clip, frame numbers and files, or all clips with their gaps."""
    from framewin.dataset import FrameWindowDataset
    from framewin.pictures.figures import THEME, Look
    from framewin.pictures.window_figures import SHEET_SUFFIXES, contact_sheet, window_picture

    refuse_url(out, "pictures are written to this machine, give --out a path")
    with usage_errors():
        folder = out.absolute().parent
        if not folder.is_dir():
            raise ValueError(f"--out must be in a folder that is there, got {out}")
        if not os.access(out if out.exists() else folder, os.W_OK) or out.is_dir():
            raise StoreError(f"{out} cannot be written to; choose another --out")
        look = Look(cmap, vmin, vmax, theme)
        shape = (input_frames, predict_frames, frame_step, window_stride, lead_gap)
        if window is None:
            if shape != (5, 5, 1, 1, 0):
                raise ValueError("without --window all clips are drawn, and no option of a window")
            if out.suffix.lower() not in SHEET_SUFFIXES:
                raise ValueError(
                    f"--out must end in {', '.join(SHEET_SUFFIXES)} for all clips, got {out}"
                )
            dataset = FrameWindowDataset(path, input_frames=1, predict_frames=1)
            contact_sheet(dataset, look=look).write(out, theme or THEME)
            print_rows([("picture", str(out)), ("clips", f"{len(dataset.clips.names):,}")])
            return
        dataset = FrameWindowDataset(
            path,
            input_frames=input_frames,
            predict_frames=predict_frames,
            frame_step=frame_step,
            window_stride=window_stride,
            lead_gap=lead_gap,
        )
        if not -len(dataset) <= window < len(dataset):
            raise ValueError(f"--window {window} is out of range, there are {len(dataset)}")
        picture = window_picture(dataset, window, look)
    picture.save(out)
    inputs, targets = picture.labels[:input_frames], picture.labels[input_frames:]
    print_rows(
        [
            ("picture", str(out)),
            ("window", picture.title[0]),
            ("inputs", " ".join(inputs)),
            ("targets", " ".join(targets)),
            ("files", picture.title[1]),
        ]
    )
