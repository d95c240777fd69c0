"""`framewin fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from framewin.cli.output import (
    BYTES,
    StorageOption,
    print_rows,
    show_progress,
    size_text,
    stopping,
    storage_options,
    usage_errors,
)


def fetch(
    url: Annotated[str, typer.Argument(help="Store: s3://, gs://, http:// or https://.")],
    dest: Annotated[Path, typer.Argument(help="Store to make on this machine.")],
    storage_option: StorageOption = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Simultaneous requests.", show_default="16")
    ] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Discard what an interrupted fetch left, and begin anew."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Download a store and verify every byte; repeat the command to resume an interrupted fetch."""
    from framewin.stores.fetch import fetch as run_fetch

    with (
        stopping(lambda: "what is done is kept, repeat the command to go on"),
        usage_errors(),
        show_progress("fetching", quiet, unit=BYTES) as progress,
    ):
        report = run_fetch(
            url,
            dest,
            storage_options=storage_options(storage_option),
            workers=workers,
            restart=restart,
            progress=progress,
        )
    rate = size_text((report.num_bytes - report.kept_bytes) / report.seconds)
    rows = [
        ("store", str(report.path)),
        ("from", report.url),
        ("bytes", size_text(report.num_bytes)),
        ("time", f"{report.seconds:.2f} s, {rate}/s, every byte verified"),
    ]
    if report.kept_bytes:
        rows.append(("kept", f"{size_text(report.kept_bytes)} that were there already"))
    print_rows(rows)
