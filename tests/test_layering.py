"""Data moves one way: a module imports only what the table allows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "framewin"

BASE = {"errors", "optional", "remote", "schema"}
# Module or package -> what it may import of framewin, besides itself. "" is framewin itself, for
# its version.
ALLOWED = {
    "": set(),
    "errors": set(),
    "optional": {"errors"},
    "remote": {"errors", "optional"},
    "process": set(),
    "schema": {"errors"},
    "metrics": {"schema"},
    "windows": {"schema"},
    "scaling": {"optional", "metrics", "windows"},
    "sources": {*BASE, "containers"},
    "containers": BASE,
    "stores": {*BASE, "", "containers"},
    "conversion": {*BASE, "", "sources", "stores", "windows"},
    "dataset": {*BASE, "containers", "scaling", "stores", "windows", "adapters", "forecast"},
    "leaks": {"schema", "dataset"},
    "planning": {*BASE, "conversion", "stores", "windows", "dataset"},
    "augment": {"schema", "metrics", "windows"},
    "adapters": {*BASE, "augment", "scaling", "stores", "windows", "metrics", "dataset"},
    "model_table": set(),
    "models": {*BASE, "metrics", "model_table"},
    "testing": set(),
    "forecast": {
        *BASE,
        "",
        "stores",
        "windows",
        "metrics",
        "dataset",
        "adapters",
        "augment",
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
        "conversion",
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
        "leaks",
        "planning",
        "forecast",
    },
    "__main__": {"cli"},
}
FRAMEWORKS = {"tensorflow", "keras", "torch", "jax"}
DECODERS = {"imagecodecs", "imageio", "PIL", "tifffile", "av"}
FORBIDDEN = {
    "sources": FRAMEWORKS,
    "conversion": FRAMEWORKS,
    "stores": FRAMEWORKS | DECODERS,
    "windows": FRAMEWORKS | DECODERS | {"zarr", "os", "pathlib"},
    "metrics": FRAMEWORKS | DECODERS | {"zarr", "os", "pathlib"},
    "containers": FRAMEWORKS | DECODERS,
    "dataset": DECODERS | {"zarr"},
    "adapters": DECODERS | {"zarr"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    """The row of the table that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, but for types."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_lies_above(path: Path) -> None:
    """Every import is in the table, and the two wings keep to their own libraries."""
    row = place(path)
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "framewin":
            target = rest.partition(".")[0]
            target = (
                target
                if (PACKAGE / f"{target}.py").exists() or ((PACKAGE / target).is_dir() and target)
                else ""
            )
            assert target == row or target in ALLOWED[row], f"{row} imports {name}"
        else:
            assert top not in FORBIDDEN.get(row, set()), f"{row} imports {name}"


def test_the_table_is_complete() -> None:
    """Every module has its row, and no row is left over."""
    assert {place(path) for path in MODULES} == set(ALLOWED)


def test_every_module_says_what_it_is() -> None:
    """A module without a docstring is one that nobody can place."""
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), path
