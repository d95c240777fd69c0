"""Frame predictors, all from stored frames to frames in unit scale; importing needs Keras.

A model takes stored frames, (B, T_in, H, W, C) of the store's dtype, and gives float32
(B, T_out, H, W, C) in unit scale. Importing this module registers the layers, so that
`keras.models.load_model` finds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framewin.errors import TrainingError
from framewin.model_table import MODELS, ModelScale, check_model_name
from framewin.models.convlstm import build_convlstm, build_convlstm_residual
from framewin.models.layers import chosen_patch_size, default_patch_size
from framewin.models.own import checked, imported
from framewin.models.persistence import build_persistence
from framewin.models.simvp import build_simvp
from framewin.schema import FrameFormat

__all__ = [
    "MODELS",
    "all_options",
    "build_convlstm",
    "build_convlstm_residual",
    "build_model",
    "build_persistence",
    "build_simvp",
    "check_model_name",
    "default_patch_size",
]


def build_model(
    name: str,
    input_frames: int,
    predict_frames: int,
    frame_format: FrameFormat,
    options: Mapping[str, Any],
    *,
    mixed_precision: bool = False,
    run: Path | None = None,
    asked: bool = False,
    scale: ModelScale | None = None,
) -> Any:
    """A model by its name.

    Args:
        name: One of `MODELS`, or `package.module:build`: then `build(input_frames,
            predict_frames, frame_format, **options)` of that module is called, which may lie in
            the current folder, and must return a Keras model as this module describes.
        input_frames: T_in.
        predict_frames: T_out; of a next-frame model, whose output k follows input k, T_in.
        frame_format: Height, width, channels and dtype of the stored frames.
        options: Further keyword arguments of the builder.
        mixed_precision: Compute in bfloat16, with weights and output in float32.
        run: The folder of the run that says all this, from which nothing is imported.
        scale: What a model of the table computes with; by default unit scale.
        asked: Whether the user named the model, not only that run; see `own.imported`.

    Raises:
        ValueError: No such name, or options out of range.
        TrainingError: The module cannot be imported, the function fails, or what it returns is
            no Keras model, or one of other shapes or not of float32.
    """
    check_model_name(name)
    options = options if scale is None else {**options, "scale": scale}
    with _precision(mixed_precision):
        return _built(name, input_frames, predict_frames, frame_format, options, run, asked)


def _built(
    name: str,
    input_frames: int,
    predict_frames: int,
    frame_format: FrameFormat,
    options: Mapping[str, Any],
    run: Path | None,
    asked: bool,
) -> Any:
    if name in MODELS:
        builder = globals()[MODELS[name].builder]
        unknown = sorted(set(options) - {*MODELS[name].options, "seed", "scale"})
        if unknown:
            raise ValueError(f"the model {name} has no option {unknown[0]!r}")
        return builder(input_frames, predict_frames, frame_format, **options)
    build = imported(name, run, asked=asked)
    try:
        model = build(input_frames, predict_frames, frame_format, **options)
    except Exception as exc:
        what = " ".join(str(exc).split())[:300]
        raise TrainingError(f"{name} failed with {type(exc).__name__}: {what}") from exc
    return checked(model, name, input_frames, predict_frames, frame_format)


@contextmanager
def _precision(mixed: bool) -> Iterator[None]:
    """The policy of the layers that are made in the block."""
    import keras

    before = keras.config.dtype_policy()
    if mixed:
        keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def all_options(name: str, frame_format: FrameFormat, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model with nothing left open: those given, and the builder's defaults.

    Raises:
        ValueError: A patch size larger than a frame.
    """
    if name not in MODELS:
        return dict(options)
    kind = MODELS[name]
    parameters = inspect.signature(globals()[kind.builder]).parameters
    found = {key: parameters[key].default for key in kind.options} | dict(options)
    if kind.patches_across:
        patch = chosen_patch_size(found["patch_size"], frame_format, kind.patches_across)
        found["patch_size"] = patch
    return found
