"""Encoder-forecaster ConvLSTMs (after Shi et al., 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framewin.model_table import MODELS, ModelScale
from framewin.models.layers import (
    ForecastHead,
    FromPatches,
    ToPatches,
    chosen_patch_size,
    frame_input,
    in_unit,
    is_bounded,
)
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


@keras.saving.register_keras_serializable(package="framewin")
class ConvLSTMCell(keras.layers.Layer):
    """One step: x (B, h, w, D), hidden and cell (B, h, w, F) -> new hidden and cell."""

    def __init__(self, filters: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters, self.seed = filters, seed
        init = keras.initializers.GlorotUniform(seed)
        self.gates = keras.layers.Conv2D(
            4 * filters,
            3,
            padding="same",
            kernel_initializer=init,
            dtype=self.dtype_policy,
            name="gates",
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


class RecurrentBody(keras.layers.Layer):
    """What both recurrent bodies have: an embedding, cells that read and cells that forecast.

    Sums of frames stay float32 under mixed precision; only the cells compute in less.
    """

    def __init__(
        self,
        steps: int,
        filters: int,
        depth: int,
        dropout: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.steps, self.filters, self.depth = steps, filters, depth
        self.dropout, self.seed = dropout, seed
        init, policy = keras.initializers.GlorotUniform(seed), self.dtype_policy
        self.embed = keras.layers.Dense(
            filters, kernel_initializer=init, dtype=policy, name="embed"
        )
        self.encoder, self.forecaster = (
            [
                ConvLSTMCell(filters, first + n, dtype=policy, name=f"{name}_{n}")
                for n in range(depth)
            ]
            for name, first in (("encoder", seed), ("forecaster", seed + depth))
        )
        self.drop = keras.layers.Dropout(dropout, seed=seed, dtype=policy, name="drop")

    def build(self, shape: Any) -> None:
        batch, _, rows, cols, size = shape
        self.embed.build((batch, rows, cols, 2 * size))
        for cell in self.encoder + self.forecaster:
            cell.build((batch, rows, cols, self.filters))

    def _read(self, patches: Any) -> tuple[Any, Any, Any]:
        """The encoder's states after all input frames, the last frame and the one before."""
        empty = ops.repeat(ops.zeros_like(patches[:, 0, ..., :1]), self.filters, axis=-1)
        empty = ops.cast(empty, self.compute_dtype)
        states = [(empty, empty)] * self.depth
        before = now = patches[:, 0]
        for t in range(patches.shape[1]):
            before, now = now, patches[:, t]
            states = advance(self.encoder, self._embedded(before, now), states)
        return states, before, now

    def _embedded(self, before: Any, now: Any) -> Any:
        return self.embed(ops.concatenate([now, now - before], axis=-1))

    def _hidden(self, states: Any) -> Any:
        """(B, h, w, depth * F)."""
        return self.drop(ops.concatenate([hidden for hidden, _ in states], axis=-1))

    def get_config(self) -> dict[str, Any]:
        own = {"steps": self.steps, "filters": self.filters, "depth": self.depth}
        return {**super().get_config(), **own, "dropout": self.dropout, "seed": self.seed}


def advance(cells: Any, x: Any, states: Any) -> list[tuple[Any, Any]]:
    """One step of stacked cells: each takes the hidden state of the one below."""
    advanced = []
    for cell, (hidden, memory) in zip(cells, states, strict=True):
        x, memory = cell(x, hidden, memory)
        advanced.append((x, memory))
    return advanced


@keras.saving.register_keras_serializable(package="framewin")
class EncoderForecaster(RecurrentBody):
    """Patches (B, T_in, h, w, D) -> (B, steps, h, w, D): each forecast adds to the one before.

    The forecaster starts from the encoder's states and then sees only its own forecasts.
    """

    def build(self, shape: Any) -> None:
        super().build(shape)
        # Zeros make the untrained model repeat the last frame: training starts at that baseline.
        self.change = keras.layers.Dense(
            shape[-1], kernel_initializer="zeros", dtype="float32", name="change"
        )
        self.change.build((*shape[:1], *shape[2:4], self.depth * self.filters))

    def call(self, patches: Any) -> Any:
        states, before, now = self._read(patches)
        forecasts = []
        for _ in range(self.steps):
            states = advance(self.forecaster, self._embedded(before, now), states)
            before, now = now, now + self.change(self._hidden(states))
            forecasts.append(now)
        return ops.stack(forecasts, axis=1)


@keras.saving.register_keras_serializable(package="framewin")
class HiddenForecaster(RecurrentBody):
    """Patches (B, T_in, h, w, D) -> features (B, steps, h, w, depth * F).

    The forecaster starts from the encoder's states, reads the last frame once, and then its own
    hidden state.
    """

    def call(self, patches: Any) -> Any:
        states, before, now = self._read(patches)
        x = self._embedded(before, now)
        features = []
        for _ in range(self.steps):
            states = advance(self.forecaster, x, states)
            x = states[-1][0]
            features.append(self._hidden(states))
        return ops.stack(features, axis=1)


def build_convlstm(
    input_frames: int,
    predict_frames: int,
    frame_format: FrameFormat,
    *,
    filters: int = DEFAULT_FILTERS,
    layers: int = DEFAULT_LAYERS,
    patch_size: int | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: ModelScale | None = None,
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
        dropout: Share of the forecaster's hidden channels left out at each training step.
        seed: Of the initial weights.
        scale: What it computes with; by default unit scale.

    Returns:
        A model from stored frames (B, T_in, H, W, C) to float32 (B, T_out, H, W, C): it divides
        uint8 by 255 and uint16 by 65535 itself, and stays in 0..1 for these.
    """
    patch = chosen_patch_size(patch_size, frame_format, MODELS["convlstm"].patches_across)
    inputs, frames = frame_input(input_frames, frame_format, scale)
    x = ToPatches(patch, dtype="float32", name="to_patches")(frames)
    x = EncoderForecaster(
        predict_frames, filters, layers, dropout, seed, name="encoder_forecaster"
    )(x)
    x = FromPatches(
        patch, frame_format.shape, is_bounded(frame_format, scale), dtype="float32", name="forecast"
    )(x)
    return keras.Model(inputs, in_unit(x, frame_format, scale), name="convlstm")


def build_convlstm_residual(
    input_frames: int,
    predict_frames: int,
    frame_format: FrameFormat,
    *,
    filters: int = DEFAULT_FILTERS,
    layers: int = DEFAULT_LAYERS,
    patch_size: int | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: ModelScale | None = None,
) -> keras.Model:
    """A ConvLSTM that says how the input frames move, mix and change; see `ForecastHead`.

    Args and return value are those of `build_convlstm`, but that patches are half as large by
    default, and that the untrained model mixes about a per cent of the earlier inputs into the
    last.
    """
    patch = chosen_patch_size(patch_size, frame_format, MODELS["convlstm-residual"].patches_across)
    inputs, frames = frame_input(input_frames, frame_format, scale)
    x = ToPatches(patch, dtype="float32", name="to_patches")(frames)
    x = HiddenForecaster(predict_frames, filters, layers, dropout, seed, name="hidden")(x)
    x = ForecastHead(patch, is_bounded(frame_format, scale), seed=seed, name="forecast")(frames, x)
    return keras.Model(inputs, in_unit(x, frame_format, scale), name="convlstm_residual")
