"""Options of commands that come from the fields of settings, and help in groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from framewin.settings import GROUPS, choices, hints, parse_form, set_keywords


class GroupedCommand(TyperCommand):
    """A command whose help shows its options by their groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group, and one for options of none."""
        titles = ("Arguments", *GROUPS, "Options")
        sections: dict[str, list[Any]] = {title: [] for title in titles}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            title = getattr(parameter, "rich_help_panel", None) or usual
            if record is not None:
                sections[title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def options_of(
    *settings: type, only: Collection[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field with a group, in place of its `**options`.

    `only` keeps some of them. The command gets values by the names of the fields, as fields have
    them.
    """
    every = [(each, hints(cls)[each.name]) for cls in settings for each in fields(cls)]
    offered = [
        (each, hint)
        for each, hint in every
        if "group" in each.metadata and (only is None or each.name in only)
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, **given: Any) -> None:
            for each, _ in offered:
                given[each.name] = _value(each, given[each.name])
            command(*args, **given)

        set_keywords(run, (_parameter(each, hint) for each, hint in offered))
        return run

    return decorated


def _flag(setting: Field[Any]) -> str:
    return f"--{setting.name.replace('_', '-')}"


def _parameter(setting: Field[Any], hint: Any) -> inspect.Parameter:
    """The option of a field, as typer reads it from a signature."""
    about, words = setting.metadata, choices(hint)
    alternatives = f"<{'|'.join(words)}>" if words else None
    option = typer.Option(
        _flag(setting),
        help=about["help"],
        min=about.get("least"),
        metavar=about.get("form", alternatives),
        show_default=about.get("shown", True),
        rich_help_panel=about["group"],
    )
    kind, default = hint, setting.default
    if words:
        kind = str
    elif isinstance(default, tuple):
        kind, default = list[str], list(default)
    elif "form" in about or str in get_args(hint):
        kind = str | None
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _value(setting: Field[Any], given: Any) -> Any:
    """The value of a field, from what its option gave."""
    if isinstance(given, list):
        return tuple(given)
    if "form" not in setting.metadata or given is None:
        return given
    try:
        return parse_form(setting.metadata["form"], given)
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint=f"'{_flag(setting)}'") from None
