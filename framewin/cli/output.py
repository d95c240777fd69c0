"""How the commands print: tables on stdout, progress on stderr."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from framewin.errors import shown
from framewin.optional import require

if TYPE_CHECKING:
    from framewin.schema import Progress

LINE_SECONDS = 5.0
SHOWN = 5
_PLAIN = re.compile(r"'[\w.:-]+'")
# After a blank or a bracket, and without a slash: a path may hold such text, too.
_ARGUMENT = re.compile(r"(?<=[ (])([a-z_]+)=('[^']*'|(?:[^ ,;)'/.:][^ ,;)'/]*)?)(?![^ ,;).:])")
_SUBJECT = re.compile("[a-z_]+(?= (?:of [a-z0-9]+ )?must )")
INTERRUPTED_EXIT = 128 + signal.SIGINT
TERMINATED_EXIT = 128 + signal.SIGTERM
BYTES = "bytes"
"""A unit of progress that is shown in kB, MB and GB."""

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Of a URL: a setting of obstore's store, above the environment; repeatable.",
    ),
]

ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="The model of your own that the run is known to be of; its module is imported.",
    ),
]

CmapOption = Annotated[
    str | None, typer.Option(help="Colour map of matplotlib, for frames of one channel.")
]
VminOption = Annotated[
    float | None, typer.Option(help="Pixel value, as stored, of the first colour.")
]
VmaxOption = Annotated[float | None, typer.Option(help="Of the last colour.")]
ThemeOption = Annotated[
    str | None,
    typer.Option(help="Of pictures: dark or light.", show_default="sheets dark, charts light"),
]


def storage_options(given: list[str] | None) -> dict[str, str] | None:
    """The values of `--storage-option` by name; None without any.

    Raises:
        BadParameter: One of another form.
    """
    pairs = [text.partition("=") for text in given or ()]
    for name, equals, _ in pairs:
        if not (name and equals):
            # Not the whole: it may be a secret.
            raise typer.BadParameter(f"--storage-option must be KEY=VALUE, got {name!r}")
    return {name: value for name, _, value in pairs} or None


@contextmanager
def usage_errors() -> Iterator[None]:
    """A bad value is wrong usage."""
    try:
        yield
    except ValueError as exc:
        raise typer.BadParameter(shown(str(exc))) from None


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def stopping(what_is_kept: Callable[[], str]) -> Iterator[None]:
    """Say what becomes of the work when Ctrl-C or SIGTERM stops it, in one line."""

    def stop(*_: object) -> NoReturn:
        # A second one ends the process at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as exc:
        say(f"framewin: stopped; {what_is_kept()}")
        terminated = isinstance(exc, _TerminatedError)
        raise typer.Exit(TERMINATED_EXIT if terminated else INTERRUPTED_EXIT) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def in_flags(text: str, arguments: Collection[str]) -> str:
    """A message of the library that speaks of its arguments as flags of the command line.

    >>> known = {"step", "mode", "fit", "drop_alpha"}
    >>> in_flags("try step=2, mode='x y', fit='pad', where='x' or drop_alpha=True", known)
    "try --step 2, --mode 'x y', --fit pad, where='x' or --drop-alpha"
    >>> in_flags("step must be above 0, got 0", known)
    '--step must be above 0, got 0'
    """

    def translated(match: re.Match[str]) -> str:
        if match[1] not in arguments:
            return match[0]
        value = "" if match[2] == "True" else match[2]
        if _PLAIN.fullmatch(value):
            value = value[1:-1]
        return f"--{match[1].replace('_', '-')} {value}".rstrip()

    first = _SUBJECT.match(text)
    if first is not None and first[0] in arguments:
        text = f"--{first[0].replace('_', '-')}{text[first.end() :]}"
    return _ARGUMENT.sub(translated, text)


@contextmanager
def show_progress(what: str, quiet: bool, *, unit: str = "frames") -> Iterator[Progress | None]:
    """A bar on a terminal, a line every few seconds elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _progress_bar(what, unit) as update:
            yield update
    else:
        yield _progress_lines(what, unit)


@contextmanager
def _progress_bar(what: str, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn() if unit == BYTES else MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s"),
        TimeRemainingColumn(),
    )
    rate_of = _rate()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, rate="-")

        def update(done: int, total: int) -> None:
            rate = _count(rate_of(done), unit)
            bar.update(task, completed=done, total=total, rate=rate)

        yield update


def _progress_lines(what: str, unit: str) -> Progress:
    last = time.perf_counter()
    rate_of = _rate()

    def update(done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        rate = rate_of(done)
        if now - last >= LINE_SECONDS and rate > 0:
            last = now
            left = (total - done) / rate
            print(
                f"{what}: {_amount(done, total, unit)}, {_count(rate, unit)}/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    return update


def _rate() -> Callable[[int], float]:
    """What is done a second since the first call: an interrupted run may have worked before."""
    begun: list[tuple[float, int]] = []

    def rate(done: int) -> float:
        now = time.perf_counter()
        begun[:] = begun or [(now, done)]
        [(started, first)] = begun
        return (done - first) / (now - started) if now > started else 0.0

    return rate


def _count(number: float, unit: str) -> str:
    return size_text(number) if unit == BYTES else f"{number:,.0f} {unit}"


def _amount(done: int, total: int, unit: str) -> str:
    if unit == BYTES:
        return f"{size_text(done)} of {size_text(total)}"
    return f"{done:,} of {total:,} {unit}"


def print_rows(rows: list[tuple[str, str]]) -> None:
    """A table of labels and values on stdout, each value in one line."""
    labels = [shown(label) for label, _ in rows]
    width = max(map(len, labels))
    for label, (_, value) in zip(labels, rows, strict=True):
        print(f"{label:{width}}  {shown(value)}".rstrip())


def say(line: str) -> None:
    """A line on stderr."""
    print(shown(line), file=sys.stderr, flush=True)


def never_fail_to_print() -> None:
    """Have characters that the output's encoding lacks printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def size_text(num_bytes: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.1f} {unit}"
    return f"{num_bytes:.0f} bytes"


def import_tensorflow_quietly() -> None:
    """Import TensorFlow without its notes about missing GPUs and CPU features."""
    from framewin.process import silenced

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silenced():
        require("tensorflow", extra="tensorflow")
