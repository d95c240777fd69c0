"""The command line: results on stdout, progress on stderr.

Exit codes: 0 done, 1 a `FramewinError` (one line), 2 wrong usage, 3 done, but damaged frames were
left out, 130 stopped by Ctrl-C, 143 by SIGTERM. Heavy packages are imported inside the commands, so
that `framewin --help` is quick.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import framewin
from framewin.cli.bench import bench
from framewin.cli.convert import convert
from framewin.cli.evaluate import evaluate
from framewin.cli.fetch import fetch
from framewin.cli.options import GroupedCommand
from framewin.cli.output import in_flags, never_fail_to_print, say, stopping
from framewin.cli.plan import plan
from framewin.cli.predict import predict
from framewin.cli.show import show
from framewin.cli.split import split
from framewin.cli.stores import info, verify
from framewin.cli.train import train
from framewin.errors import FramewinError, one_line


class _Commands(TyperGroup):
    """Commands whose errors speak of flags where the library speaks of arguments."""

    def invoke(self, ctx: Any) -> Any:
        try:
            # Commands that keep something say so themselves.
            with stopping(lambda: "repeat the command to begin anew"):
                return super().invoke(ctx)
        except (FramewinError, typer.BadParameter) as exc:
            command = self.commands[ctx.invoked_subcommand]
            names = {str(option.name) for option in command.params}
            if isinstance(exc, typer.BadParameter):
                exc.message = in_flags(exc.message, names)
            else:
                exc.args = (in_flags(str(exc), names), *exc.args[1:])
            raise


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pack frame folders into mapped stores and train frame predictors from them.",
)
COMMANDS = (
    *(convert, info, verify, fetch, plan, show, split),
    *(train, evaluate, predict, bench),
)
for command in COMMANDS:
    app.command(cls=GroupedCommand)(command)


def main(arguments: list[str] | None = None, obj: Any = None) -> None:
    """Entry point of the `framewin` command; with other arguments, and what its context holds."""
    never_fail_to_print()
    try:
        app(arguments, obj=obj)
    except FramewinError as exc:
        say(f"framewin: {exc}")
        sys.exit(1)
    # What the system refuses where no command expects it.
    except OSError as exc:
        place = f"{exc.filename}: " if exc.filename else ""
        say(f"framewin: {place}{one_line(exc)}")
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"framewin {framewin.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
