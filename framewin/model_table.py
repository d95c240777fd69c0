"""The models that a run can name, without importing any framework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

BODY_OPTIONS = ("filters", "layers", "patch_size", "dropout")


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A row of the table."""

    builder: str
    """Name of the function in `framewin.models`."""
    text: str
    """What it is, in a line."""
    options: tuple[str, ...] = ()
    """Keyword arguments of the builder that `framewin train` has options for."""
    patches_across: int = 0
    """Patches that are at most across a frame's shorter side, where no patch size is given."""


MODELS = {
    "convlstm": ModelKind(
        "build_convlstm",
        "encoder-forecaster ConvLSTM on patches",
        BODY_OPTIONS,
        8,
    ),
    "convlstm-residual": ModelKind(
        "build_convlstm_residual",
        "ConvLSTM that moves, mixes and changes the input frames",
        BODY_OPTIONS,
        16,
    ),
    "simvp": ModelKind(
        "build_simvp",
        "convolutions over stacked time that move, mix and change the input frames",
        BODY_OPTIONS,
        16,
    ),
    "persistence": ModelKind("build_persistence", "repeats the last frame; nothing to train"),
}
"""Name -> model; anything else must be the user's own, `package.module:build`."""


@dataclass(frozen=True, slots=True)
class ModelScale:
    """What models of the table compute with: `(stored - offset) / divisor`, by channel."""

    offset: tuple[float, ...]
    """Stored unit, one for each channel."""
    divisor: tuple[float, ...]
    """The same."""
    blank: float | None = None
    """Stored value of inputs without data, in whose place a model sees 0."""

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None, channels: int) -> ModelScale | None:
        """What `asdict` gave, or None.

        Raises:
            ValueError: It is not for so many channels, or has a value that scales nothing.
        """
        if record is None:
            return None
        offset, divisor, blank = (record[name] for name in ("offset", "divisor", "blank"))
        numbers = [*offset, *divisor, *([] if blank is None else [blank])]
        if any(type(each) not in (int, float) or not math.isfinite(each) for each in numbers) or (
            not len(offset) == len(divisor) == channels or min(divisor) <= 0
        ):
            raise ValueError(f"scaling cannot be {str(record)[:200]}")
        return cls(tuple(offset), tuple(divisor), blank)

    def record(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def check_model_name(name: str) -> str:
    """The name itself.

    Raises:
        ValueError: Neither in the table nor of the form `package.module:build`.
    """
    module, separator, function = name.partition(":")
    own = separator and function.isidentifier() and all(p.isidentifier() for p in module.split("."))
    if name not in MODELS and not own:
        known = ", ".join(MODELS)
        raise ValueError(f"model must be one of {known}, or package.module:build, got {name!r}")
    return name
