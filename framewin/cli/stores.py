"""`framewin info` and `framewin verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framewin.cli.options import options_of
from framewin.cli.output import (
    StorageOption,
    print_rows,
    say,
    show_progress,
    size_text,
    storage_options,
    usage_errors,
)
from framewin.conversion.settings import ConvertSettings
from framewin.remote import Location, location, refuse_url

if TYPE_CHECKING:
    from framewin.schema import ClipTable
    from framewin.stores import Store
    from framewin.stores.array_store import ArrayStore
    from framewin.stores.info import StoreInfo
    from framewin.windows.spec import WindowSpec

SHOWN_CLIPS = 10


@options_of(ConvertSettings, only=("array", "axes", "allow_missing_chunks"))
def info(
    path: Annotated[
        str, typer.Argument(help="A store, its URL, or a file or folder with an array.")
    ],
    input_frames: Annotated[
        int, typer.Option(min=1, help="Input frames of a window, to count the windows.")
    ] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Predicted frames of a window.")] = 5,
    frame_step: Annotated[int, typer.Option(min=1, help="Between frames of a window.")] = 1,
    window_stride: Annotated[int, typer.Option(min=1, help="Between starts of windows.")] = 1,
    lead_gap: Annotated[int, typer.Option(min=0, help="Frames skipped before predictions.")] = 0,
    storage_option: StorageOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    **options: Any,
) -> None:
    """Describe a store or an array without reading any frame."""
    from framewin.stores.info import describe
    from framewin.windows.spec import Runs, WindowIndex, WindowSpec

    with usage_errors():
        place = location(path, storage_options(storage_option))
        store = _opened(place, options)
    found = describe(store)
    spec = WindowSpec(input_frames, predict_frames, frame_step, window_stride, lead_gap)
    windows = len(WindowIndex(spec, Runs.of(store.meta.clips)))
    if as_json:
        print(json.dumps({**found.as_json(), "windows": windows}, indent=2))
    else:
        print_rows(_info_rows(found, store.meta.clips, spec, windows))


def _opened(place: Location, options: dict[str, Any]) -> Store | ArrayStore:
    """A store, or else an array that others wrote."""
    from framewin.errors import NotOursError
    from framewin.stores import open_store
    from framewin.stores.array_store import open_array

    foreign = None
    if options["array"] is None and options["axes"] is None:
        try:
            own = open_store(place)
            if options["allow_missing_chunks"]:
                raise ValueError(f"{place} is a store of framewin; leave allow_missing_chunks= out")
            return own
        except NotOursError as exc:
            foreign = exc
    store = open_array(place, **options, cache_bytes=0)
    if foreign is not None and store.source.info.is_own:
        raise foreign
    return store


def verify(
    path: Annotated[str, typer.Argument(help="Store made by framewin convert, or its URL.")],
    against: Annotated[
        Path | None, typer.Option(help="Decode this source again and compare its pixels.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check sizes, tables and names, but read no frames.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also read all frames through zarr or h5py.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads; by default one per core, or 16 for a URL.")
    ] = None,
    storage_option: StorageOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Check every byte of a store against its checksums; exit code 1 if any is damaged."""
    from framewin.stores.verify import verify as run_verify

    if against is not None:
        refuse_url(path, "framewin fetch it to compare it with its source")
    with usage_errors(), show_progress("verifying", quiet) as progress:
        report = run_verify(
            path,
            quick=quick,
            full=full,
            workers=workers,
            storage_options=storage_options(storage_option),
            progress=progress,
        )
    damage = list(report.damage)
    if against is not None and not damage:
        from framewin.conversion.against import compare

        with show_progress("comparing", quiet) as progress:
            damage = compare(path, against, workers=workers, progress=progress)
    rate = size_text(report.num_bytes / report.seconds)
    size = size_text(report.num_bytes)
    rows = [
        ("store", str(report.path)),
        ("frames", f"{report.frames:,}"),
        ("checked", f"{size} in {report.seconds:.2f} s, {rate}/s{_level(quick, full)}"),
        ("damage", f"{len(report.damage)} found" if report.damage else "none"),
    ]
    if against is not None and not report.damage:
        rows.append(("compared", "not equal" if damage else f"equal to {against}"))
    print_rows(rows)
    for line in damage:
        say(f"framewin: {line}")
    if damage:
        raise typer.Exit(1)


def _level(quick: bool, full: bool) -> str:
    if quick:
        return "; frames were not read"
    return "; other readers see the same" if full else ""


def _values(found: StoreInfo) -> str:
    """What pixel values mean, in words."""
    shown = {"scale_factor": "times {}", "add_offset": "plus {}", "units": "in {}"}
    return ", ".join(
        shown.get(name, name + " {}").format(value) for name, value in found.packing.items()
    )


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
        *([("values", _values(found))] if found.packing else []),
        *(
            (f"{name}", f"{first:g} to {last:g}")
            for name, (first, last) in found.coordinates.items()
        ),
        ("layout", layout),
        ("bytes", f"{size_text(found.bytes)}, pixels {size_text(found.pixel_bytes)}, "
                  f"ratio {found.compression_ratio:.2f}"),
        ("windows", f"{windows:,} of {spec.input_frames}+{spec.predict_frames} frames, "
                    f"{spec.window_stride} apart"),
    ]  # fmt: skip
