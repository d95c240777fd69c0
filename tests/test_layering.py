"""Data moves one way: a module imports only what the table allows."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from framewin import _HOMES

PACKAGE = Path(__file__).parent.parent / "framewin"

BASE = {"errors", "optional", "parallel", "remote", "schema", "settings"}
# Module or package -> what it may import of framewin, besides itself. "" is framewin itself, which
# lends names lazily; others take its version from there.
ALLOWED = {
    "": {
        *("errors", "process", "sources", "stores", "conversion"),
        *("frames", "splitting", "batches", "dataset", "leaks", "planning"),
        *("augment", "scaling", "forecast"),
    },
    "errors": set(),
    "optional": {"errors"},
    "parallel": set(),
    "remote": {"errors", "optional"},
    "process": set(),
    "settings": set(),
    "schema": {"errors"},
    "metrics": {"schema"},
    "windows": {"schema"},
    "scaling": {"optional", "metrics", "windows"},
    "arrays": BASE,
    "sources": {*BASE, "arrays"},
    "stores": {*BASE, "", "arrays"},
    "conversion": {*BASE, "", "sources", "stores", "windows"},
    "frames": {*BASE, "arrays", "stores", "windows"},
    "splitting": {*BASE, "frames", "stores", "windows"},
    "batches": {"augment", "scaling", "windows", "adapters"},
    "dataset": {
        *BASE,
        "frames",
        "splitting",
        "batches",
        "scaling",
        "stores",
        "windows",
        "pictures",
    },
    "leaks": {"schema", "dataset"},
    "planning": {*BASE, "conversion", "stores", "windows", "frames", "dataset"},
    "augment": {"schema", "metrics", "windows"},
    "adapters": {*BASE, "augment", "scaling", "stores", "windows", "metrics"},
    "pictures": {*BASE, "metrics", "scaling"},
    "model_table": set(),
    "models": {*BASE, "metrics", "model_table"},
    "testing": set(),
    "forecast": {
        *BASE,
        "",
        "stores",
        "windows",
        "metrics",
        "frames",
        "splitting",
        "dataset",
        "adapters",
        "augment",
        "scaling",
        "pictures",
        "model_table",
        "models",
        # Prediction reads new frames as they are converted, in one module, frames_in_turn.
        "sources",
        "conversion",
        "testing",
    },
    "bench": {
        *BASE,
        "",
        "process",
        "stores",
        "dataset",
        "augment",
    },
    "cli": {
        *BASE,
        "",
        "bench",
        "process",
        "sources",
        "stores",
        "windows",
        "conversion",
        "dataset",
        "splitting",
        "leaks",
        "metrics",
        "planning",
        "pictures",
        "forecast",
    },
    "__main__": {"cli"},
}
HEAVY = {
    *("tensorflow", "keras", "torch", "jax", "grain", "albumentations", "cv2", "matplotlib"),
    *("imagecodecs", "imageio", "PIL", "tifffile", "av", "hdf5plugin"),
    *("zarr", "h5py", "numcodecs", "xarray", "xbatcher", "tensorstore", "cftime", "scipy"),
    *("obstore", "distributed", "dask", "skimage", "rich", "typer", "tensorboard"),
}
# Row -> the heavy libraries that it may import at all; wings keep to their own.
MAY_USE = {
    "remote": {"obstore"},
    "sources": {"av", "imagecodecs", "tifffile"},
    "arrays": {"cftime", "h5py", "hdf5plugin", "zarr"},
    "stores": {"h5py", "hdf5plugin", "imagecodecs", "numcodecs", "zarr"},
    "conversion": {"distributed"},
    "augment": {"keras"},
    "adapters": {"keras", "tensorflow", "torch"},
    "models": {"keras"},
    "testing": {"keras"},
    "pictures": {"PIL", "av", "matplotlib"},
    "forecast": {
        *("keras", "tensorflow", "tensorboard"),
        *("av", "cv2", "h5py", "imagecodecs", "matplotlib"),
    },
    "bench": {"keras", "tensorflow", "PIL", "imagecodecs"},
    "cli": {"rich", "typer", "tensorflow"},
}
PURE = {"windows", "metrics"}
"""Rows that open nothing."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    """The row of the table that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def is_for_types(test: ast.expr) -> bool:
    """Whether a condition is just `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def names_a_module(text: str) -> bool:
    """Whether a string is the dotted name of a module of framewin, for `import_module`."""
    parts = text.split(".")
    if parts[0] != "framewin" or not all(part.isidentifier() for part in parts):
        return False
    found = PACKAGE.joinpath(*parts[1:])
    return len(parts) > 1 and (found.is_dir() or found.with_suffix(".py").exists())


def imports(tree: ast.AST) -> set[str]:
    """Dotted names of everything that code imports, at any depth, but for types alone.

    Strings count that name a module of framewin, or are given as the first argument to anything
    called import_module, require or __import__.
    """
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and is_for_types(node.test):
            waiting += node.orelse
            continue
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, "a relative import"
                found |= {f"{module}.{alias.name}" for alias in names}
            case ast.Constant(value=str(text)) if names_a_module(text):
                found.add(text)
            case ast.Call(func=func, args=[ast.Constant(value=str(text)), *_]):
                called = getattr(func, "id", getattr(func, "attr", ""))
                if called in ("import_module", "require", "__import__"):
                    found.add(text)
        waiting += ast.iter_child_nodes(node)
    return found


def row_of_import(name: str) -> str:
    """The row that `framewin...` leads to; of what the package lends its name, its home's row."""
    rest = _HOMES.get(name.removeprefix("framewin."), name).split(".")[1:]
    first = rest[0] if rest else ""
    return first if first in ALLOWED else ""


def offences(row: str, tree: ast.AST) -> list[str]:
    """What the code of a row imports against the tables."""
    found = []
    for name in imports(tree):
        top = name.partition(".")[0]
        if top == "framewin":
            target = row_of_import(name)
            wrong = target != row and target not in ALLOWED[row]
        else:
            wrong = top in HEAVY - MAY_USE.get(row, set())
            wrong |= row in PURE and top in ("os", "pathlib", "io", "shutil")
        if wrong:
            found.append(name)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_lies_above(path: Path) -> None:
    """Every import is in the tables, wherever in the file it is."""
    assert offences(place(path), ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("row", "code", "wrong"),
    [
        ("windows", "from framewin import FrameWindowDataset", "framewin.FrameWindowDataset"),
        ("windows", "import framewin.dataset", "framewin.dataset"),
        ("sources", "def f():\n    from framewin.stores import open_store", "framewin.stores."),
        ("stores", "importlib.import_module('framewin.sources.png')", "framewin.sources.png"),
        ("stores", "KINDS = {'png': 'framewin.sources.png'}", "framewin.sources.png"),
        ("stores", "if not TYPE_CHECKING:\n    import framewin.sources", "framewin.sources"),
        ("stores", "if TYPE_CHECKING:\n    pass\nelse:\n    import tensorflow", "tensorflow"),
        ("metrics", "try:\n    import scipy\nexcept ImportError:\n    pass", "scipy"),
        ("schema", "require('torch')", "torch"),
        ("metrics", "import os", "os"),
        ("errors", "class A:\n    import zarr.core", "zarr.core"),
    ],
)
def test_imports_are_seen(row: str, code: str, wrong: str) -> None:
    """Also those by the lazy top level, by name, under a condition and within functions."""
    (found,) = offences(row, ast.parse(code))
    assert found.startswith(wrong)
    assert offences(row, ast.parse("if TYPE_CHECKING:\n    import framewin.cli, torch")) == []


def test_the_tables_are_complete() -> None:
    """Every module has its row, no row is left over, and each allowance is used."""
    assert {place(path) for path in MODULES} == set(ALLOWED)
    used: dict[str, set[str]] = {row: set() for row in ALLOWED}
    for path in MODULES:
        used[place(path)] |= {
            name.partition(".")[0] for name in imports(ast.parse(path.read_text()))
        }
    assert {row: found & HEAVY for row, found in used.items() if found & HEAVY} == MAY_USE


def test_rows_go_round_in_no_circle() -> None:
    """But for framewin itself, which lends everybody's names, and its version."""
    TopologicalSorter({row: above - {""} for row, above in ALLOWED.items()}).prepare()


def test_every_module_says_what_it_is() -> None:
    """A module without a docstring is one that nobody can place."""
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), path
