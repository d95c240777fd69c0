"""The ConvLSTM: shapes, scaling, what it can see, and what it is before training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from framewin.metrics import last_frame, to_unit
from framewin.schema import FrameFormat

pytestmark = pytest.mark.usefixtures("tf")

FORMATS = [
    FrameFormat(16, 16, 1, "uint8"),
    FrameFormat(30, 45, 3, "uint16"),
    FrameFormat(5, 7, 1, "float32"),
]


def random_frames(frame_format: FrameFormat, frames: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    unit = rng.random((2, frames, *frame_format.shape))
    if frame_format.dtype == "float32":
        return unit.astype(np.float32)
    return (unit * np.iinfo(frame_format.dtype).max).astype(frame_format.dtype)


def build(frame_format: FrameFormat, **options: object) -> object:
    from framewin.models import build_convlstm

    return build_convlstm(3, 4, frame_format, **{"filters": 4, **options})


@pytest.mark.parametrize("frame_format", FORMATS, ids=str)
def test_untrained_it_repeats_the_last_frame(frame_format: FrameFormat) -> None:
    """It takes stored frames of any size and dtype, and scales them itself."""
    inputs = random_frames(frame_format, 3)
    forecast = build(frame_format).predict_on_batch(inputs)
    assert (forecast.shape, forecast.dtype) == ((2, 4, *frame_format.shape), np.float32)
    np.testing.assert_allclose(forecast, last_frame(to_unit(inputs), 4), atol=1e-5)


def test_every_input_counts() -> None:
    """Once trained a little, each input frame changes the forecast, so none is ignored."""
    model = trained(FORMATS[0])
    inputs = random_frames(FORMATS[0], 3)
    forecast = model.predict_on_batch(inputs)
    for place in range(3):
        changed = inputs.copy()
        changed[:, place] ^= 0x40
        assert abs(model.predict_on_batch(changed) - forecast).max() > 1e-6


def trained(frame_format: FrameFormat) -> object:
    model = build(frame_format)
    inputs, targets = random_frames(frame_format, 3), to_unit(random_frames(frame_format, 4))
    model.compile(optimizer="adam", loss="mse")
    for _ in range(3):
        model.train_on_batch(inputs, targets)
    return model


def test_targets_are_out_of_reach() -> None:
    """Causal by construction: the only input is the input frames, and no frame more."""
    model = build(FORMATS[0])
    assert [tensor.shape for tensor in model.inputs] == [(None, 3, 16, 16, 1)]
    assert model.outputs[0].shape == (None, 4, 16, 16, 1)


def test_a_longer_forecast_begins_like_a_shorter_one() -> None:
    """Frame k of the forecast depends on nothing after it: a longer horizon changes nothing."""
    short = trained(FORMATS[0])
    from framewin.models import build_convlstm

    long = build_convlstm(3, 7, FORMATS[0], filters=4)
    long.set_weights(short.get_weights())
    inputs = random_frames(FORMATS[0], 3)
    difference = long.predict_on_batch(inputs)[:, :4] - short.predict_on_batch(inputs)
    assert abs(difference).max() < 1e-6


def test_a_saved_model_loads_in_a_fresh_process(tmp_path: Path) -> None:
    """Safe mode on, the same forecasts to the last bit."""
    model = trained(FORMATS[1])
    inputs = random_frames(FORMATS[1], 3)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "inputs.npy", inputs)
    script = (
        "import sys, keras, numpy as np, framewin.models\n"
        "model = keras.models.load_model(sys.argv[1] + '/model.keras')\n"
        "out = model.predict_on_batch(np.load(sys.argv[1] + '/inputs.npy'))\n"
        "np.save(sys.argv[1] + '/out.npy', out)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, capture_output=True)
    assert np.array_equal(np.load(tmp_path / "out.npy"), model.predict_on_batch(inputs))


def test_the_same_seed_gives_the_same_weights(tf: ModuleType) -> None:
    """And another seed others."""
    first, same, other = (build(FORMATS[0], seed=seed).get_weights() for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))
