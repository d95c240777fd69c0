"""A convolutional predictor over stacked time (after Gao et al., 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framewin.model_table import MODELS, ModelScale
from framewin.models.layers import (
    ForecastHead,
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
DEFAULT_LAYERS = 4
TRANSLATOR_WIDTH = 4
"""Channels of the translator, in filters."""
DILATIONS = (1, 2, 4)
"""Of the translator's blocks in turn: how far the wide convolution looks."""


@keras.saving.register_keras_serializable(package="framewin")
class SimVPBody(keras.layers.Layer):
    """Patches (B, T_in, h, w, D) -> features (B, steps, h, w, 2 * F).

    An encoder sees each frame by itself, a translator all frames as channels at once, and a
    decoder each lead time, with what the encoder saw of the last frame beside it.
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
        super().__init__(**kwargs)
        self.steps, self.filters, self.depth = steps, filters, depth
        self.dropout, self.seed = dropout, seed
        width = TRANSLATOR_WIDTH * filters
        self.encoder = [self._conv(filters, 3, n, f"encoder_{n}") for n in range(2)]
        self.gather = self._conv(width, 1, 2, "gather")
        self.blocks = [
            (
                self._conv(width, 3, 10 + n, f"near_{n}"),
                self._conv(width, 3, 50 + n, f"wide_{n}", DILATIONS[n % len(DILATIONS)], True),
            )
            for n in range(depth)
        ]
        self.spread = self._conv(steps * filters, 1, 3, "spread")
        self.decoder = self._conv(2 * filters, 3, 4, "decoder")
        self.drop = keras.layers.SpatialDropout2D(dropout, seed=seed, name="drop")

    def _conv(
        self, filters: int, size: int, seed: int, name: str, dilation: int = 1, last: bool = False
    ) -> Any:
        # A block whose last weights are zeros begins as no block: depth costs no stability.
        init = "zeros" if last else keras.initializers.HeNormal(self.seed + seed)
        return keras.layers.Conv2D(
            filters,
            size,
            padding="same",
            dilation_rate=dilation,
            kernel_initializer=init,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, shape: Any) -> None:
        _, inputs, rows, cols, size = shape
        width = TRANSLATOR_WIDTH * self.filters
        self.encoder[0].build((None, rows, cols, size))
        self.encoder[1].build((None, rows, cols, self.filters))
        self.gather.build((None, rows, cols, inputs * self.filters))
        for near, wide in self.blocks:
            near.build((None, rows, cols, width))
            wide.build((None, rows, cols, width))
        self.spread.build((None, rows, cols, width))
        self.decoder.build((None, rows, cols, 2 * self.filters))

    def call(self, patches: Any) -> Any:
        inputs, rows, cols, size = patches.shape[1:]
        x = ops.reshape(patches, (-1, rows, cols, size))
        for conv in self.encoder:
            x = ops.silu(conv(x))
        seen = ops.reshape(x, (-1, inputs, rows, cols, self.filters))
        x = ops.reshape(
            ops.transpose(seen, (0, 2, 3, 1, 4)), (-1, rows, cols, inputs * self.filters)
        )
        x = self.gather(x)
        for near, wide in self.blocks:
            x = x + wide(ops.silu(near(ops.silu(x))))
        x = ops.silu(self.spread(self.drop(ops.silu(x))))
        x = ops.reshape(x, (-1, rows, cols, self.steps, self.filters))
        x = ops.transpose(x, (0, 3, 1, 2, 4))
        last = ops.repeat(seen[:, -1:], self.steps, axis=1)
        x = ops.concatenate([x, last], axis=-1)
        x = ops.silu(self.decoder(ops.reshape(x, (-1, rows, cols, 2 * self.filters))))
        return ops.reshape(x, (-1, self.steps, rows, cols, 2 * self.filters))

    def get_config(self) -> dict[str, Any]:
        own = {"steps": self.steps, "filters": self.filters, "depth": self.depth}
        return {**super().get_config(), **own, "dropout": self.dropout, "seed": self.seed}


def build_simvp(
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
    """Encoder, translator and decoder of convolutions; all lead times at once.

    After Gao et al., "SimVP: Simpler yet Better Video Prediction", 2022: the translator sees
    all input frames stacked as channels. Here its blocks are residual, with dilated 3x3
    convolutions for the sight that the paper's large kernels give, and the forecast is made by
    `ForecastHead`, whose paths from the input frames are the skip connection.

    Args:
        input_frames: T_in.
        predict_frames: T_out.
        frame_format: Height, width, channels and dtype of the stored frames.
        filters: Channels of encoder and decoder; the translator has four times as many.
        layers: Blocks of the translator.
        patch_size: Side of the square patches that frames are cut into; see
            `default_patch_size`.
        dropout: Share of the translator's channels left out at each training step.
        seed: Of the initial weights.
        scale: What it computes with; by default unit scale.

    Returns:
        A model as `build_convlstm` makes it.
    """
    patch = chosen_patch_size(patch_size, frame_format, MODELS["simvp"].patches_across)
    inputs, frames = frame_input(input_frames, frame_format, scale)
    x = ToPatches(patch, dtype="float32", name="to_patches")(frames)
    x = SimVPBody(predict_frames, filters, layers, dropout, seed, name="body")(x)
    x = ForecastHead(patch, is_bounded(frame_format, scale), seed=seed, name="forecast")(frames, x)
    return keras.Model(inputs, in_unit(x, frame_format, scale), name="simvp")
