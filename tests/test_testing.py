"""The causality test: which next-frame models see ahead, and where."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.conftest import import_or_skip

pytestmark = pytest.mark.usefixtures("tf")
SHAPE = (4, 6, 6, 1)


def keras_example(kernel: tuple[int, int, int], filters: int = 4) -> object:
    """The architecture of the Keras ConvLSTM example, with fewer filters."""
    keras = import_or_skip("keras")
    layers = keras.layers
    x = frames = keras.Input(SHAPE)
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
