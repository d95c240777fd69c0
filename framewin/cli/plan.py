"""`framewin plan`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framewin.cli.output import print_rows, size_text, usage_errors

if TYPE_CHECKING:
    from framewin.planning import ReadCost, ReadPlan

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def plan(
    path: Annotated[Path, typer.Argument(help="Store made by framewin convert.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Windows in a batch.")] = 8,
    input_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Of a window.")] = 5,
    frame_step: Annotated[int, typer.Option(min=1, help="Of a window.")] = 1,
    window_stride: Annotated[int, typer.Option(min=1, help="Between windows.")] = 1,
    lead_gap: Annotated[int, typer.Option(min=0, help="Of a window.")] = 0,
    memory: Annotated[
        str | None, typer.Option(help="For frames, such as 16GB; default: half of the machine's.")
    ] = None,
    disk_mbps: Annotated[
        float, typer.Option(help="What the disk reads, in 10^6 bytes a second.")
    ] = 500.0,
    cache_bytes: Annotated[
        int, typer.Option(min=0, help="Decoded chunks of a compressed store that are kept.")
    ] = 2**28,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say what training from a store will read, and how to lay it out and shuffle it."""
    from framewin.planning import plan as make_plan

    with usage_errors():
        found = make_plan(
            path,
            batch_size=batch_size,
            input_frames=input_frames,
            predict_frames=predict_frames,
            frame_step=frame_step,
            window_stride=window_stride,
            lead_gap=lead_gap,
            memory_bytes=None if memory is None else _bytes(memory),
            disk_mbps=disk_mbps,
            cache_bytes=cache_bytes,
        )
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
        return
    print_rows(_rows(found))
    print()
    print(
        f"{'shuffle':8} {'read/used':>9} {'a batch':>10} {'first epoch':>21} {'later epochs':>21}"
    )
    for cost in found.costs:
        print(_line(cost))


def _rows(found: ReadPlan) -> list[tuple[str, str]]:
    shape, blocks = found.block_shape, found.shuffle_blocks
    shuffle = repr(found.shuffle)
    if blocks is not None:
        shuffle += f", shuffle_blocks ({blocks.block_windows}, {blocks.group_blocks})"
    layout = "raw" if found.layout == "none" else found.layout
    cache = "none" if found.cache is None else found.cache
    if found.cache_bytes is not None:
        cache += f", cache_bytes {found.cache_bytes:,}"
    reasons = [("", reason) for reason in found.reasons]
    return [
        ("store", found.path),
        ("windows", f"{found.windows:,} in {found.batches:,} batches, "
                    f"{size_text(found.window_bytes)} an epoch"),
        ("frames", f"{size_text(found.frame_bytes)}, memory for them "
                   f"{size_text(found.memory_bytes)}"),
        ("blocks", f"{shape.block_windows:,} windows, {shape.group_blocks:,} in a group"),
        ("advice", f"layout {layout}, chunks of {found.chunk_frames}; cache {cache}; shuffle "
                   f"{shuffle}; read_ahead {found.read_ahead}"),
        *reasons,
        ("readahead", _readahead(found.readahead_bytes)),
    ]  # fmt: skip


def _readahead(count: int | None) -> str:
    if count is None:
        return "unknown"
    return f"{size_text(count)} around each page that is missing, unless read_ahead= asks before"


def _line(cost: ReadCost) -> str:
    name = cost.shuffle if isinstance(cost.shuffle, str) else str(cost.shuffle)
    first = f"{size_text(cost.disk_bytes)} {cost.first_seconds:9,.1f} s"
    later = f"{size_text(cost.later_disk_bytes)} {cost.later_seconds:9,.1f} s"
    counted = "" if cost.whole else "  from a part"
    batch = size_text(cost.batch_bytes)
    return f"{name:8} {cost.amplification:9.2f} {batch:>10} {first:>21} {later:>21}{counted}"


def _bytes(text: str) -> int:
    """16GB, 500 MB or a number of bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)B?", text.strip())
    if match is None:
        raise ValueError(f"--memory must be a size such as 16GB or 500MB, got {text!r}")
    return round(float(match[1]) * UNITS[match[2]])
