"""Imports of packages that only some users need."""

from __future__ import annotations

import importlib
from typing import Any

from framewin.errors import MissingDependencyError


def require(module: str, *, extra: str) -> Any:
    """Import a module, or say which extra installs it.

    Args:
        module: Dotted name, for example `"tensorflow"`.
        extra: The extra of framewin that brings it.

    Raises:
        MissingDependencyError: The module's package is not installed. An import that fails
            inside an installed package is passed on as it is.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        package = module.partition(".")[0]
        if exc.name is None or exc.name.partition(".")[0] != package:
            raise
        raise MissingDependencyError(
            f"needs {package}; run: pip install 'framewin[{extra}]'"
        ) from exc
