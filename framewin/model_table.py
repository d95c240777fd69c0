"""The models that a run can name, without importing any framework."""

from __future__ import annotations

from dataclasses import dataclass

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
