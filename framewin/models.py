"""Frame predictors: an encoder-forecaster ConvLSTM (Shi et al., 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framewin.metrics import FULL_SCALE
from framewin.optional import require
from framewin.schema import FrameFormat

if TYPE_CHECKING:
    import keras
    from keras import ops
else:
    keras = require("keras", extra="tensorflow")
    ops = keras.ops

DEFAULT_FILTERS = 32
DEFAULT_LAYERS = 2
PATCHES_ACROSS = 8
PATCH_SIZES = (1, 2, 4, 8, 16)


@keras.saving.register_keras_serializable(package="framewin")
class ToPatches(keras.layers.Layer):
    """(B, T, H, W, C) -> (B, T, H/p, W/p, p*p*C); H and W are first padded to multiples of p."""

    def __init__(self, patch_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size

    def call(self, frames: Any) -> Any:
        p = self.patch_size
        time, height, width, channels = frames.shape[1:]
        margins = ((0, 0), (0, 0), (0, -height % p), (0, -width % p), (0, 0))
        x = ops.pad(frames, margins, mode="symmetric")
        rows, cols = x.shape[2] // p, x.shape[3] // p
        x = ops.reshape(x, (-1, time, rows, p, cols, p, channels))
        x = ops.transpose(x, (0, 1, 2, 4, 3, 5, 6))
        return ops.reshape(x, (-1, time, rows, cols, p * p * channels))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "patch_size": self.patch_size}


@keras.saving.register_keras_serializable(package="framewin")
class FromPatches(keras.layers.Layer):
    """Inverse of ToPatches: (B, T, h, w, p*p*C) -> (B, T, H, W, C), cropped, clipped to 0..1."""

    def __init__(self, patch_size: int, frame_shape: tuple[int, int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.patch_size, self.frame_shape = patch_size, tuple(frame_shape)

    def call(self, patches: Any) -> Any:
        p, (height, width, channels) = self.patch_size, self.frame_shape
        time, rows, cols = patches.shape[1:4]
        x = ops.reshape(patches, (-1, time, rows, cols, p, p, channels))
        x = ops.transpose(x, (0, 1, 2, 4, 3, 5, 6))
        x = ops.reshape(x, (-1, time, rows * p, cols * p, channels))[:, :, :height, :width]
        # A plain clip would pass no gradient to a pixel that is out of range and wrong.
        return x + ops.stop_gradient(ops.clip(x, 0.0, 1.0) - x)

    def get_config(self) -> dict[str, Any]:
        own = {"patch_size": self.patch_size, "frame_shape": self.frame_shape}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="framewin")
class ConvLSTMCell(keras.layers.Layer):
    """One step: x (B, h, w, D), hidden and cell (B, h, w, F) -> new hidden and cell."""

    def __init__(self, filters: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters, self.seed = filters, seed
        init = keras.initializers.GlorotUniform(seed)
        self.gates = keras.layers.Conv2D(
            4 * filters, 3, padding="same", kernel_initializer=init, name="gates"
        )

    def build(self, x_shape: Any, *_: Any) -> None:
        self.gates.build((*x_shape[:-1], x_shape[-1] + self.filters))

    def call(self, x: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
        i, f, o, g = ops.split(self.gates(ops.concatenate([x, hidden], axis=-1)), 4, axis=-1)
        # The added 1 makes a fresh cell remember until it has learnt what to forget.
        cell = ops.sigmoid(f + 1.0) * cell + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(cell), cell

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters, "seed": self.seed}


@keras.saving.register_keras_serializable(package="framewin")
class EncoderForecaster(keras.layers.Layer):
    """Patches (B, T_in, h, w, D) -> (B, steps, h, w, D): each forecast adds to the one before.

    The forecaster starts from the encoder's states and then sees only its own forecasts.
    """

    def __init__(self, steps: int, filters: int, depth: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps, self.filters, self.depth, self.seed = steps, filters, depth, seed
        init = keras.initializers.GlorotUniform(seed)
        self.embed = keras.layers.Dense(filters, kernel_initializer=init, name="embed")
        self.encoder = [ConvLSTMCell(filters, seed + n, name=f"encoder_{n}") for n in range(depth)]
        self.forecaster = [
            ConvLSTMCell(filters, seed + depth + n, name=f"forecaster_{n}") for n in range(depth)
        ]

    def build(self, shape: Any) -> None:
        batch, _, rows, cols, size = shape
        self.embed.build((batch, rows, cols, 2 * size))
        for cell in self.encoder + self.forecaster:
            cell.build((batch, rows, cols, self.filters))
        # Zeros make the untrained model repeat the last frame: training starts at that baseline.
        self.change = keras.layers.Dense(size, kernel_initializer="zeros", name="change")
        self.change.build((batch, rows, cols, self.depth * self.filters))

    def call(self, patches: Any) -> Any:
        empty = ops.repeat(ops.zeros_like(patches[:, 0, ..., :1]), self.filters, axis=-1)
        states = [(empty, empty)] * self.depth
        before = now = patches[:, 0]
        for t in range(patches.shape[1]):
            before, now = now, patches[:, t]
            states = self._advance(self.encoder, before, now, states)
        forecasts = []
        for _ in range(self.steps):
            states = self._advance(self.forecaster, before, now, states)
            hidden = ops.concatenate([hidden for hidden, _ in states], axis=-1)
            before, now = now, now + self.change(hidden)
            forecasts.append(now)
        return ops.stack(forecasts, axis=1)

    def _advance(self, cells: Any, before: Any, now: Any, states: Any) -> list[tuple[Any, Any]]:
        x = self.embed(ops.concatenate([now, now - before], axis=-1))
        advanced = []
        for cell, (hidden, memory) in zip(cells, states, strict=True):
            x, memory = cell(x, hidden, memory)
            advanced.append((x, memory))
        return advanced

    def get_config(self) -> dict[str, Any]:
        own = {"steps": self.steps, "filters": self.filters, "depth": self.depth}
        return {**super().get_config(), **own, "seed": self.seed}


def default_patch_size(height: int, width: int) -> int:
    """The smallest patch that leaves at most 8 across the shorter side, or the largest known.

    >>> default_patch_size(64, 64), default_patch_size(240, 320), default_patch_size(5, 7)
    (8, 16, 1)
    """
    shorter = min(height, width)
    return next((p for p in PATCH_SIZES if shorter <= PATCHES_ACROSS * p), PATCH_SIZES[-1])


def build_convlstm(
    input_frames: int,
    predict_frames: int,
    frame_format: FrameFormat,
    *,
    filters: int = DEFAULT_FILTERS,
    layers: int = DEFAULT_LAYERS,
    patch_size: int | None = None,
    seed: int = 0,
) -> keras.Model:
    """An encoder-forecaster ConvLSTM on patches; untrained, it repeats the last input frame.

    The encoder reads the input frames; the forecaster starts from its states and then sees
    only its own forecasts, so no target frame is ever in reach. After Shi et al.,
    "Convolutional LSTM Network: A Machine Learning Approach for Precipitation Nowcasting", 2015.

    Args:
        input_frames: T_in.
        predict_frames: T_out.
        frame_format: Height, width, channels and dtype of the stored frames.
        filters: Channels of each ConvLSTM layer.
        layers: ConvLSTM layers in the encoder and as many in the forecaster.
        patch_size: Side of the square patches that frames are cut into; see
            `default_patch_size`.
        seed: Of the initial weights.

    Returns:
        A model from stored frames (B, T_in, H, W, C) to float32 (B, T_out, H, W, C) in 0..1:
        it divides uint8 by 255 and uint16 by 65535 itself.
    """
    patch = patch_size or default_patch_size(frame_format.height, frame_format.width)
    dtype, shape = frame_format.dtype, frame_format.shape
    frames = keras.Input((input_frames, *shape), dtype=dtype, name="frames")
    x = keras.layers.Rescaling(1 / FULL_SCALE[dtype], name="unit_scale")(frames)
    x = ToPatches(patch, name="to_patches")(x)
    x = EncoderForecaster(predict_frames, filters, layers, seed, name="encoder_forecaster")(x)
    x = FromPatches(patch, shape, dtype="float32", name="forecast")(x)
    return keras.Model(frames, x, name="convlstm")
