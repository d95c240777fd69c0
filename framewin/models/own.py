"""Models of the user's own, `package.module:build`: what is imported, and what it must return."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from framewin.errors import TrainingError, one_line
from framewin.schema import FrameFormat

DECLARED = "FRAMEWIN_BUILDERS"
"""Names the functions of a module that a run may name, in a list or tuple of that module."""


def imported(name: str, run: Path | None = None, *, asked: bool = False) -> Any:
    """The function that `package.module:build` names.

    Args:
        name: The module may lie in the current folder.
        run: The folder of the run that names it, which may be a stranger's: nothing in it is
            imported, and the file that is imported is said on stderr.
        asked: Whether the user named it, too; otherwise the module must declare the function.

    Raises:
        TrainingError: The module lies in the run folder, cannot be imported, lacks the function or
            does not declare it.
    """
    module, _, function = name.partition(":")
    # As with `python -m`: a module of the user's project need not be installed.
    here = Path.cwd()
    if str(here) not in sys.path and not (run and _lies_in(here, run)):
        sys.path.append(str(here))
    try:
        with _kept_out(run, name, asked):
            loaded = importlib.import_module(module)
    except TrainingError:
        raise
    except Exception as exc:
        raise TrainingError(f"{module} cannot be imported: {one_line(exc, kind=True)}") from exc
    found = getattr(loaded, function, None)
    if not callable(found):
        raise TrainingError(f"{module} has no function {function}")
    if run is not None and not asked and function not in getattr(loaded, DECLARED, ()):
        raise _undeclared(run, name)
    return found


def _undeclared(run: Path, name: str) -> TrainingError:
    """Any function of Python could be named, such as one that runs a program."""
    module, _, function = name.partition(":")
    return TrainingError(
        f"{run} names the model {name}, which {module} does not declare; if you trust it, give "
        f'--model {name}, or write {DECLARED} = ["{function}"] into {module}'
    )


@contextmanager
def _kept_out(run: Path | None, name: str, asked: bool) -> Iterator[None]:
    """Imports in the block come from anywhere but the run folder."""
    if run is None:
        yield
        return
    guard = _Guard(run, name, asked)
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)


class _Guard:
    """Finds modules as the other finders do, and refuses those of a folder before they run, and
    the one that is named unless it declares functions that build models."""

    def __init__(self, run: Path, name: str, asked: bool) -> None:
        self._run, self._name, self._asked = run, name, asked

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self._check(spec)
                return spec
        return None

    def _check(self, spec: ModuleSpec) -> None:
        if not spec.has_location or spec.origin is None:
            return
        if _lies_in(Path(spec.origin), self._run):
            raise TrainingError(
                f"{spec.origin} lies in the run folder, whose code is not run; if you trust it, "
                "move it to your project"
            )
        if spec.name == self._name.partition(":")[0]:
            source = getattr(spec.loader, "get_source", lambda name: None)(spec.name)
            if not self._asked and DECLARED not in (source or ""):
                raise _undeclared(self._run, self._name)
            print(f"{self._run} names the model {spec.name}: {spec.origin}", file=sys.stderr)


def _lies_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def checked(
    model: Any, name: str, input_frames: int, predict_frames: int, frame_format: FrameFormat
) -> Any:
    """A model of the user's own, if it fits the frames.

    Raises:
        TrainingError: It does not.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise TrainingError(f"{name} must return a Keras model, got {type(model).__name__}")
    wanted = (None, input_frames, *frame_format.shape)
    try:
        given = keras.KerasTensor(wanted, dtype=frame_format.dtype)
        output = model(given)
        made, dtype = tuple(keras.ops.shape(output)), keras.backend.standardize_dtype(output.dtype)
    except Exception as exc:
        what = " ".join(str(exc).split())[:300]
        raise TrainingError(f"{name} cannot take frames of shape {wanted}: {what}") from exc
    wanted = (None, predict_frames, *frame_format.shape)
    if made != wanted:
        raise TrainingError(f"{name} gives shape {made}, it must give {wanted}")
    if dtype != "float32":
        raise TrainingError(
            f'{name} gives {dtype}, it must give float32; give its last layer dtype="float32"'
        )
    return model
