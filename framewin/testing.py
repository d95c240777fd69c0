"""What users can assert of their own models: that no forecast has seen what it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TOLERANCE = 1e-6
"""Of the largest value of an output frame: beyond it a change is more than rounding."""
MOST_DRAWS = 8
"""Of random weights, with which each output frame must react once to its own input frame."""


def assert_causal(
    model: Any, window_shape: Sequence[int], *, dtype: str | None = None, seed: int = 0
) -> None:
    """Assert that output k of a next-frame model depends on inputs up to k only.

    Input frame j is changed, and no output before j may change, for every j. Every layer with
    time in its output is tried alike, so that the first one that reaches ahead is named.

    Args:
        model: A Keras model from (B, T, H, W, C) to (B, T, ...), whose output k is meant to
            follow input k, such as a stack of ConvLSTM2D.
        window_shape: (T, H, W, C) of the input frames.
        dtype: Of the frames; by default what the model's input says, else float32.
        seed: Of the random frames and weights that it is tried with; the model's own weights may
            hide a path, as zeros do, and come back afterwards.

    Raises:
        AssertionError: An output sees ahead; the message says which, and the first layer.
        ValueError: Fewer than two frames, outputs without an axis of as many, or an output frame
            that does not react even to its own input frame, or is not finite: nothing is proved.
    """
    ahead = look_ahead(model, window_shape, dtype=dtype, seed=seed)
    if ahead is not None:
        raise AssertionError(ahead)


def look_ahead(
    model: Any, window_shape: Sequence[int], *, dtype: str | None = None, seed: int = 0
) -> str | None:
    """What `assert_causal` finds wrong, in words; None of a causal model. Args as there."""
    frames = int(window_shape[0])
    if frames < 2:
        raise ValueError(f"causality needs at least 2 frames, got {frames}")
    rng = np.random.default_rng(seed)
    known = getattr(model, "inputs", None)
    inputs = _random_frames(rng, window_shape, dtype or (known[0].dtype if known else "float32"))
    shown = np.zeros(frames, bool)
    for _ in range(MOST_DRAWS):
        with _Stirred(model, inputs, rng):
            moved, finite = _reactions(model, inputs, rng)
            found = _first_reach(moved)
            if found is not None:
                layer = _first_layer(model, inputs, rng) if known else None
                return _in_words(*found, layer)
        shown |= np.diag(moved) & finite
        # Weights by which a unit happens to be dead would hide what it sees.
        if shown.all():
            return None
    output = int(np.argmin(shown))
    what = f"does not react to input frame {output}" if finite[output] else "is not finite"
    raise ValueError(f"output frame {output} {what}, so nothing is known of what it sees")


def _in_words(output: int, changed: int, layer: str | None) -> str:
    named = "" if layer is None else f"; the first layer that reaches ahead is {layer}"
    return (
        f"output frame {output} depends on input frame {changed}, which may be the frame that it "
        f"predicts{named}"
    )


def _reactions(
    model: Any, inputs: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Which output frame (rows) each input frame (columns) changes, and which are finite."""
    frames = inputs.shape[1]
    outputs: np.ndarray = np.asarray(model(inputs, training=False), np.float64)
    if outputs.ndim < 3 or outputs.shape[1] != frames:
        raise ValueError(f"{frames} input frames give outputs of shape {outputs.shape}")
    axes = (0, *range(2, outputs.ndim))
    moved, finite = np.zeros((frames, frames), bool), np.isfinite(outputs).all(axis=axes)
    for changed in range(frames):
        others = inputs.copy()
        others[:, changed] = _random_frames(rng, inputs.shape[2:], inputs.dtype.name)
        after: np.ndarray = np.asarray(model(others, training=False), np.float64)
        finite &= np.isfinite(after).all(axis=axes)
        with np.errstate(invalid="ignore"):
            change = np.abs(after - outputs).max(axis=axes)
        moved[:, changed] = change > TOLERANCE * np.abs(outputs).max(axis=axes)
    return moved, finite


def _first_reach(moved: np.ndarray) -> tuple[int, int] | None:
    """(output, input) of the first output frame that a later input frame changes, or None."""
    ahead = np.argwhere(np.triu(moved, 1))
    return (int(ahead[0, 0]), int(ahead[0, 1])) if len(ahead) else None


def _first_layer(model: Any, inputs: np.ndarray, rng: np.random.Generator) -> str | None:
    """The first layer of a functional model whose output sees ahead, with its kind and kernel."""
    for layer in model.layers:
        part = _up_to(model, layer, inputs.shape[1])
        if part is not None and _first_reach(_reactions(part, inputs, rng)[0]) is not None:
            kernel = getattr(layer, "kernel_size", None)
            sized = "" if kernel is None else f" with a kernel of {tuple(kernel)}"
            return f"{layer.name} ({type(layer).__name__}{sized})"
    return None


def _up_to(model: Any, layer: Any, frames: int) -> Any:
    """The model that ends with a layer; None where its output has no such time axis."""
    import keras

    try:
        output = layer.output
        part = keras.Model(model.inputs[0], output)
    except (AttributeError, ValueError):
        return None  # Not called once, or not in this model's graph.
    shape: Any = getattr(output, "shape", ())
    return part if len(shape) >= 3 and shape[1] in (frames, None) else None


class _Stirred:
    """A model with random weights for the time of a `with` block."""

    def __init__(self, model: Any, inputs: np.ndarray, rng: np.random.Generator) -> None:
        model(inputs, training=False)  # builds what is not built yet
        self._weights, self._rng = model.weights, rng

    def __enter__(self) -> None:
        self._own = [weight.numpy().copy() for weight in self._weights]
        for weight, own in zip(self._weights, self._own, strict=True):
            stirred = own + _stirring(weight.name, own.shape, self._rng)
            weight.assign(stirred.astype(own.dtype))

    def __exit__(self, *_: object) -> None:
        for weight, own in zip(self._weights, self._own, strict=True):
            weight.assign(own)


def _stirring(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """What is added to a weight so that it hides no path and saturates nothing."""
    if len(shape) < 2 or "variance" in name:
        return rng.uniform(0, 0.05, shape)  # Upwards only, for a variance must stay positive.
    # However many inputs a kernel adds up, their sum stays as large as one of them.
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[:-1])), shape)


def _random_frames(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """(1, *shape) of the whole range of integers, or 0..1."""
    unit = rng.random((1, *map(int, shape)))
    if np.dtype(dtype).kind == "f":
        return unit.astype(dtype)
    return (unit * np.iinfo(dtype).max).astype(dtype)
