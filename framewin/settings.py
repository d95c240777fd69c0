"""Settings that are declared once, as fields of a dataclass.

A field has its default, help text, limits and group. From them come the keyword arguments of
functions, the options of commands, the checks and their error texts.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

S = TypeVar("S")

GROUPS = ("Source", "Order of frames", "Pixels", "Store", "Run")
"""Groups of settings, in the order in which the help of commands shows them."""


def setting(default: Any, help_text: str, **about: Any) -> Any:
    """A field of a dataclass of settings.

    Args:
        default: Its default.
        help_text: For the command line and for docstrings.
        **about: `group`, one of `GROUPS`, without which the command line has no such option;
            `least`, the smallest number allowed; `form`, such as `"HxW"`, of several integers on
            the command line; `shown`, the default in words.
    """
    return field(default=default, metadata={"help": help_text, **about})


def hints(settings: type) -> dict[str, Any]:
    """Type of each field."""
    return get_type_hints(settings)


def choices(hint: Any) -> tuple[str, ...]:
    """The words that a field of this type may have, if it is one of words."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def check(settings: Any) -> None:
    """Check what the fields of settings say about their values.

    Raises:
        ValueError: A value that is none of a field's choices, too small, or of another form.
    """
    for each in fields(settings):
        value, least = getattr(settings, each.name), each.metadata.get("least")
        allowed = choices(hints(type(settings))[each.name])
        if allowed and value not in allowed:
            raise ValueError(f"{each.name} must be one of {', '.join(allowed)}, got {value!r}")
        if value is None:
            continue
        if least is not None and value < least:
            raise ValueError(f"{each.name} must be >= {least}, got {value}")
        count = len(re.findall("[A-Z]+", each.metadata.get("form", "")))
        if count and not _is_integers(value, count):
            raise ValueError(f"{each.name} must be {count} integers, got {value!r}")


def _is_integers(value: Any, count: int) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) == count
        and all(isinstance(part, int) for part in value)
    )


def parse_form(form: str, text: str) -> tuple[int, ...]:
    """The integers of a text in which each word of capitals stands for one.

    >>> parse_form("HxW", "64x80"), parse_form("R,G,B", "255,0,0")
    ((64, 80), (255, 0, 0))

    Raises:
        ValueError: A text of another form.
    """
    match = re.fullmatch(re.sub("[A-Z]+", r"(\\d+)", form), text.strip(), re.ASCII)
    if match is None:
        raise ValueError(f"expected {form}, got {text!r}")
    return tuple(map(int, match.groups()))


def taken(settings: type[S], given: Mapping[str, Any]) -> S:
    """Settings by those of the given values that are named like its fields."""
    names = {each.name for each in fields(settings)}  # type: ignore[arg-type]
    return settings(**{name: value for name, value in given.items() if name in names})


def set_keywords(function: Callable[..., Any], keywords: Iterable[inspect.Parameter]) -> None:
    """Show keyword arguments in the signature of a function in place of its last, `**options`."""
    signature = inspect.signature(function, eval_str=True)
    parameters = [*list(signature.parameters.values())[:-1], *keywords]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}


def document_keywords(function: Callable[..., Any], settings: type) -> None:
    """Show the fields of settings in signature and docstring in place of `**options`."""
    known = hints(settings)
    set_keywords(
        function,
        (
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=known[each.name],
            )
            for each in fields(settings)
        ),
    )
    entries = []
    for each in fields(settings):
        shown = each.metadata.get("shown")
        text = f"{each.name}: {each.metadata['help']}" + (f" Default: {shown}." if shown else "")
        entries.append(textwrap.fill(text, 96, initial_indent=8 * " ", subsequent_indent=12 * " "))
    lines = (function.__doc__ or "").split("\n")
    at = next((i for i, line in enumerate(lines) if line.lstrip().startswith("**options:")), None)
    if at is not None:
        function.__doc__ = "\n".join([*lines[:at], *entries, *lines[at + 1 :]])
