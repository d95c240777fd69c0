"""What users can assert of their own models: that no forecast has seen what it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from framewin.errors import TrainingError

TOLERANCE = 1e-6
"""Of the largest output: beyond it a change is more than rounding."""


def assert_causal(model: Any, window_shape: Sequence[int], *, seed: int = 0) -> None:
    """Assert that output k of a next-frame model depends on inputs up to k only.

    Input frame j is changed, and no output before j may change, for every j. A layer with time
    in its output is tried alike, so that the first one that reaches ahead is named.

    Args:
        model: A Keras model from (B, T, H, W, C) to (B, T, ...), whose output k is meant to
            follow input k, such as a stack of ConvLSTM2D.
        window_shape: (T, H, W, C) of the input frames.
        seed: Of the random frames and weights that it is tried with; the model's own weights may
            hide a path, as zeros do, and come back afterwards.

    Raises:
        AssertionError: An output sees ahead; the message says which, and the first layer.
        ValueError: Fewer than two frames, or outputs without an axis of as many.
    """
    ahead = look_ahead(model, window_shape, seed=seed)
    if ahead is not None:
        raise AssertionError(ahead)


def refuse_a_look_ahead(model: Any, name: str) -> None:
    """Refuse to train a next-frame model that is not causal.

    Raises:
        TrainingError: It sees ahead.
    """
    shape = tuple(model.input_shape[1:])
    try:
        ahead = look_ahead(model, shape)
    except ValueError as exc:
        raise TrainingError(f"{name} cannot be a next-frame model: {exc}") from None
    if ahead is not None:
        raise TrainingError(f"{name} is not causal: {ahead}")


def look_ahead(model: Any, window_shape: Sequence[int], *, seed: int = 0) -> str | None:
    """What `assert_causal` asserts is not so, in words; None of a causal model."""
    frames = int(window_shape[0])
    if frames < 2:
        raise ValueError(f"causality needs at least 2 frames, got {frames}")
    rng = np.random.default_rng(seed)
    inputs = _random_frames(rng, window_shape, model.inputs[0].dtype)
    with _Stirred(model, rng):
        found = _first_reach(model, inputs, rng)
        if found is None:
            return None
        output, changed = found
        layer = _first_layer(model, inputs, rng)
    named = "" if layer is None else f"; the first layer that reaches ahead is {layer}"
    return (
        f"output frame {output} depends on input frame {changed}, which comes after input "
        f"{output} and may be what it predicts{named}"
    )


def _first_reach(model: Any, inputs: np.ndarray, rng: np.random.Generator) -> Any:
    """(output, input) of the first output frame that a later input frame changes, or None."""
    frames = inputs.shape[1]
    outputs = np.asarray(model(inputs, training=False), np.float64)
    if outputs.ndim < 3 or outputs.shape[1] != frames:
        raise ValueError(f"{frames} input frames give outputs of shape {outputs.shape}")
    limit = TOLERANCE * max(1.0, float(np.abs(outputs).max()))
    reaches = []
    for changed in range(1, frames):
        others = inputs.copy()
        others[:, changed] = _random_frames(rng, inputs.shape[2:], inputs.dtype.name)
        after = np.asarray(model(others, training=False), np.float64)
        axes = tuple(range(2, outputs.ndim))
        moved = np.abs(after - outputs).max(axis=(0, *axes))[:changed] > limit
        reaches += [(int(output), changed) for output in np.flatnonzero(moved)]
    return min(reaches, default=None)


def _first_layer(model: Any, inputs: np.ndarray, rng: np.random.Generator) -> str | None:
    """The first layer of a functional model whose output sees ahead, with its kind and kernel."""
    import keras

    for layer, output in _timed_layers(model, inputs.shape[1]):
        if _first_reach(keras.Model(model.inputs, output), inputs, rng) is not None:
            kernel = getattr(layer, "kernel_size", None)
            sized = "" if kernel is None else f" with a kernel of {kernel}"
            return f"{layer.name} ({type(layer).__name__}{sized})"
    return None


def _timed_layers(model: Any, frames: int) -> Iterator[tuple[Any, Any]]:
    """Layers with their outputs, in order, where these have as many frames as the input."""
    for layer in getattr(model, "layers", []):
        for node in getattr(layer, "_inbound_nodes", [])[:1]:
            output = node.output_tensors[0]
            if len(output.shape) >= 3 and output.shape[1] in (frames, None):
                yield layer, output


class _Stirred:
    """A model with random weights for the time of a `with` block."""

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self._variables = [v for v in model.variables if "float" in str(v.dtype)]
        self._rng = rng

    def __enter__(self) -> None:
        self._own = [np.array(variable) for variable in self._variables]
        for variable, own in zip(self._variables, self._own, strict=True):
            # Positive, for variances must be; small, so that nothing saturates.
            noise = self._rng.uniform(0.01, 0.1, own.shape) if own.size else own
            variable.assign(
                (np.abs(own) + noise).astype(own.dtype)
                if "moving" in variable.path
                else (own + noise * self._rng.choice([-1, 1], own.shape)).astype(own.dtype)
            )

    def __exit__(self, *_: object) -> None:
        for variable, own in zip(self._variables, self._own, strict=True):
            variable.assign(own)


def _random_frames(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """(1, *shape) of the whole range of integers, or 0..1."""
    unit = rng.random((1, *map(int, shape)))
    if np.dtype(dtype).kind == "f":
        return unit.astype(dtype)
    return (unit * np.iinfo(dtype).max).astype(dtype)
