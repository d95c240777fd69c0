"""The causality test: which next-frame models see ahead, and where."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.conftest import import_or_skip

pytestmark = pytest.mark.usefixtures("tf")
SHAPE = (4, 6, 6, 1)


def keras_example(
    kernel: tuple[int, int, int], filters: int = 4, shape: tuple[int, ...] = SHAPE
) -> object:
    """The architecture of the Keras ConvLSTM example, where it has 64 filters."""
    keras = import_or_skip("keras")
    layers = keras.layers
    x = frames = keras.Input(shape)
    for size in (5, 3, 1):
        x = layers.ConvLSTM2D(
            filters, size, padding="same", return_sequences=True, activation="relu"
        )(x)
        x = layers.BatchNormalization()(x) if size > 1 else x
    x = layers.Conv3D(1, kernel, activation="sigmoid", padding="same", name="output")(x)
    return keras.Model(frames, x)


def test_the_keras_example_sees_ahead() -> None:
    """Its last convolution spans the frame that it predicts."""
    from framewin.testing import assert_causal

    model = keras_example((3, 3, 3))
    before = model.get_weights()
    message = (
        "output frame 0 depends on input frame 1, which may be the frame that it predicts; the "
        "first layer that reaches ahead is output (Conv3D with a kernel of (3, 3, 3))"
    )
    with pytest.raises(AssertionError, match=re.escape(message)):
        assert_causal(model, SHAPE)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_the_keras_example_without_its_leak_passes() -> None:
    """A convolution of each frame by itself sees nothing of the next one."""
    from framewin.testing import assert_causal

    assert_causal(keras_example((1, 3, 3)), SHAPE)


@pytest.mark.parametrize("kernel", [(3, 3, 3), (1, 3, 3)])
def test_a_wide_model_does_not_saturate(kernel: tuple[int, int, int]) -> None:
    """Regression: sums over 64 filters of weights stirred upwards made every output exactly 1."""
    from framewin.testing import look_ahead

    shape = (6, 3, 3, 1)
    found = look_ahead(keras_example(kernel, 64, shape), shape)
    assert (found is None) == (kernel[0] == 1)
    assert found is None or found.startswith("output frame 0 depends on input frame 1,")


def test_a_small_frame_is_not_measured_by_a_large_one() -> None:
    """Output 0 sees input 1, but is a billionth of the last output."""
    keras = import_or_skip("keras")
    from framewin.testing import look_ahead

    frames = keras.Input(SHAPE)
    scale = np.array([1, 1, 1, 1e9], np.float32).reshape(1, 4, 1, 1, 1)
    ahead = keras.ops.concatenate([frames[:, 1:2], frames[:, 1:]], axis=1) * scale
    found = look_ahead(keras.Model(frames, ahead), SHAPE)
    assert found is not None
    assert found.startswith("output frame 0 depends on input frame 1,")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x * 0, "output frame 0 does not react to input frame 0, so nothing is known"),
        (lambda x: x / 0, "output frame 0 is not finite, so nothing is known of what it sees"),
    ],
)
def test_what_does_not_react_proves_nothing(
    change: Callable[[object], object], message: str
) -> None:
    """A constant output sees nothing of any frame, and one that is no number hides what it sees."""
    keras = import_or_skip("keras")
    from framewin.testing import assert_causal

    frames = keras.Input(SHAPE)
    with pytest.raises(ValueError, match=re.escape(message)):
        assert_causal(keras.Model(frames, change(frames)), SHAPE)


def test_a_unit_that_random_weights_kill_is_tried_again() -> None:
    """A single ReLU is 0 everywhere for about half of all weights."""
    keras = import_or_skip("keras")
    from framewin.testing import look_ahead

    layers = [keras.Input(SHAPE), keras.layers.Conv3D(1, 1, activation="relu")]
    model = keras.Sequential(layers)
    assert [look_ahead(model, SHAPE, seed=seed) for seed in range(6)] == [None] * 6


def test_a_leak_behind_zero_weights_is_found() -> None:
    """An untrained output of zeros depends on nothing, which proves nothing."""
    keras = import_or_skip("keras")
    from framewin.testing import assert_causal

    layers = [
        keras.Input(SHAPE, dtype="uint8"),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv3D(2, 3, padding="same", name="wide"),
        keras.layers.Conv3D(1, 1, kernel_initializer="zeros"),
    ]
    with pytest.raises(AssertionError, match=re.escape("is wide (Conv3D with a kernel of (3, 3")):
        assert_causal(keras.Sequential(layers), SHAPE)


def test_a_subclass_is_tested_too() -> None:
    """It has no graph, so no layer can be named."""
    keras = import_or_skip("keras")
    from framewin.testing import assert_causal

    class Backwards(keras.Model):
        def call(self, frames: object) -> object:
            return keras.ops.flip(frames, axis=1)

    with pytest.raises(AssertionError, match="output frame 0 depends on input frame 3, which may"):
        assert_causal(Backwards(), SHAPE)


def test_what_cannot_be_tested() -> None:
    """One frame has nothing ahead, and an encoder-forecaster no output for each input."""
    keras = import_or_skip("keras")
    from framewin.models import build_convlstm
    from framewin.schema import FrameFormat
    from framewin.testing import assert_causal

    model = build_convlstm(4, 3, FrameFormat(6, 6, 1, "uint8"), filters=2)
    with pytest.raises(ValueError, match=re.escape("4 input frames give outputs of shape (1, 3,")):
        assert_causal(model, SHAPE)
    single = keras.Sequential([keras.Input((1, 6, 6, 1)), keras.layers.Conv3D(1, 1)])
    with pytest.raises(ValueError, match="causality needs at least 2 frames, got 1"):
        assert_causal(single, (1, 6, 6, 1))
