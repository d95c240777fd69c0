"""The baseline as a model: the last input frame again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framewin.models.layers import frame_input
from framewin.optional import require
from framewin.schema import FrameFormat

if TYPE_CHECKING:
    import keras
    from keras import ops
else:
    keras = require("keras", extra="tensorflow")
    ops = keras.ops


@keras.saving.register_keras_serializable(package="framewin")
class RepeatLast(keras.layers.Layer):
    """(B, T_in, H, W, C) -> (B, steps, H, W, C)."""

    def __init__(self, steps: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps = steps

    def call(self, frames: Any) -> Any:
        return ops.repeat(frames[:, -1:], self.steps, axis=1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "steps": self.steps}


def build_persistence(
    input_frames: int, predict_frames: int, frame_format: FrameFormat, *, seed: int = 0
) -> keras.Model:
    """A model without weights that repeats the last input frame.

    Args:
        input_frames: T_in.
        predict_frames: T_out.
        frame_format: Height, width, channels and dtype of the stored frames.
        seed: Unused; there is nothing random.
    """
    inputs, frames = frame_input(input_frames, frame_format)
    x = RepeatLast(predict_frames, dtype="float32", name="forecast")(frames)
    return keras.Model(inputs, x, name="persistence")
