"""What users can assert of their own models: that no forecast has seen what it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TOLERANCE = 1e-6
"""Of the largest output: beyond it a change is more than rounding."""


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
        ValueError: Fewer than two frames, or outputs without an axis of as many.
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
    with _Stirred(model, inputs, rng):
        found = _first_reach(model, inputs, rng)
        if found is None:
            return None
        layer = _first_layer(model, inputs, rng) if known else None
    output, changed = found
    named = "" if layer is None else f"; the first layer that reaches ahead is {layer}"
    return (
        f"output frame {output} depends on input frame {changed}, which may be the frame that it "
        f"predicts{named}"
    )


def _first_reach(model: Any, inputs: np.ndarray, rng: np.random.Generator) -> Any:
    """(output, input) of the first output frame that a later input frame changes, or None."""
    frames = inputs.shape[1]
    outputs: np.ndarray = np.asarray(model(inputs, training=False), np.float64)
    if outputs.ndim < 3 or outputs.shape[1] != frames:
        raise ValueError(f"{frames} input frames give outputs of shape {outputs.shape}")
    limit = TOLERANCE * max(1.0, float(np.abs(outputs).max()))
    reaches = []
    for changed in range(1, frames):
        others = inputs.copy()
        others[:, changed] = _random_frames(rng, inputs.shape[2:], inputs.dtype.name)
        after: np.ndarray = np.asarray(model(others, training=False), np.float64)
        axes = tuple(range(2, outputs.ndim))
        moved = np.abs(after - outputs).max(axis=(0, *axes))[:changed] > limit
        reaches += [(int(output), changed) for output in np.flatnonzero(moved)]
    return min(reaches, default=None)


def _first_layer(model: Any, inputs: np.ndarray, rng: np.random.Generator) -> str | None:
    """The first layer of a functional model whose output sees ahead, with its kind and kernel."""
    for layer in model.layers:
        part = _up_to(model, layer, inputs.shape[1])
        if part is not None and _first_reach(part, inputs, rng) is not None:
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
            # Upwards only, for a variance must stay positive; by little, so that nothing
            # saturates.
            stirred = own + self._rng.uniform(0, 0.05, own.shape)
            weight.assign(stirred.astype(own.dtype))

    def __exit__(self, *_: object) -> None:
        for weight, own in zip(self._weights, self._own, strict=True):
            weight.assign(own)


def _random_frames(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """(1, *shape) of the whole range of integers, or 0..1."""
    unit = rng.random((1, *map(int, shape)))
    if np.dtype(dtype).kind == "f":
        return unit.astype(dtype)
    return (unit * np.iinfo(dtype).max).astype(dtype)
