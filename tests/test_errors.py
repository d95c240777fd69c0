"""The errors of framewin, and other errors in one line."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from framewin import errors
from framewin.errors import one_line

PACKAGE = Path(errors.__file__).parent


def test_the_drawn_tree_is_the_tree() -> None:
    """Each error is drawn once, below its parent."""
    drawing = (errors.__doc__ or "").splitlines()
    path: list[str] = []
    for line in drawing:
        name = next((word for word in line.split() if word.endswith("Error")), "")
        if not line.startswith("    ") or not name:
            continue
        path[line.index(name) // 4 - 1 :] = [name]
        parents = [parent.__name__ for parent in getattr(errors, name).__mro__]
        assert parents[: len(path)] == path[::-1], line
    classes = [name for name, _ in inspect.getmembers(errors, inspect.isclass) if "Error" in name]
    assert all(sum(f" {name} " in f"{line} " for line in drawing) == 1 for name in classes)


def test_all_errors_belong_to_the_tree() -> None:
    """Those that a module has for itself descend from it, too."""
    # An interrupt is no error, and a setting of the command line may be called after them.
    allowed = {*vars(errors), "KeyboardInterrupt", "Enum"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                assert bases & allowed or path == Path(errors.__file__), node.name


FULL = "OSError: [Errno 28] No space left on device: 'a'"


@pytest.mark.parametrize(
    ("exc", "text", "with_kind"),
    [
        (ValueError("two\nlines"), "two", "ValueError: two"),
        (ValueError(), "ValueError", "ValueError"),
        (KeyError("name"), "'name'", "KeyError: 'name'"),
        (OSError(28, "No space left on device", "a"), "No space left on device", FULL),
    ],
)
def test_an_error_in_one_line(exc: Exception, text: str, with_kind: str) -> None:
    """Its first line, what the system calls it, or its kind where it says nothing."""
    assert one_line(exc) == text
    assert one_line(exc, kind=True) == with_kind
