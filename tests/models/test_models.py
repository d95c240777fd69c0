"""The models: shapes, scaling, what they can see, and what they are before training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from framewin.metrics import last_frame, to_unit
from framewin.model_table import MODELS
from framewin.schema import FrameFormat
from tests.conftest import import_or_skip
from tests.helpers.windows import open_windows

pytestmark = pytest.mark.usefixtures("tf")

NAMES = list(MODELS)
TRAINABLE = [name for name in NAMES if name != "persistence"]
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


def build(name: str, frame_format: FrameFormat, steps: int = 4, **options: object) -> object:
    from framewin.models import build_model

    small = {} if name == "persistence" else {"filters": 4, "layers": 1}
    return build_model(name, 3, steps, frame_format, {**small, **options})


@pytest.mark.parametrize("frame_format", FORMATS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_untrained_it_repeats_the_last_frame(name: str, frame_format: FrameFormat) -> None:
    """Or nearly so; it takes stored frames of any size and dtype, and scales them itself."""
    inputs = random_frames(frame_format, 3)
    forecast = build(name, frame_format).predict_on_batch(inputs)
    assert (forecast.shape, forecast.dtype) == ((2, 4, *frame_format.shape), np.float32)
    exact = name in ("convlstm", "persistence")
    atol = 1e-5 if exact else 0.01
    np.testing.assert_allclose(forecast, last_frame(to_unit(inputs), 4), atol=atol)


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_input_counts(name: str) -> None:
    """Once trained a little, each input frame changes the forecast, so none is ignored."""
    model = trained(name, FORMATS[0])
    inputs = random_frames(FORMATS[0], 3)
    forecast = model.predict_on_batch(inputs)
    for place in range(3):
        changed = inputs.copy()
        changed[:, place] ^= 0x40
        assert abs(model.predict_on_batch(changed) - forecast).max() > 1e-6


def trained(name: str, frame_format: FrameFormat) -> object:
    model = build(name, frame_format)
    inputs, targets = random_frames(frame_format, 3), to_unit(random_frames(frame_format, 4))
    model.compile(optimizer="adam", loss="mse", jit_compile=False)
    for _ in range(3):
        model.train_on_batch(inputs, targets)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_targets_are_out_of_reach(name: str, tmp_path: Path) -> None:
    """Whatever follows the inputs in a clip, the forecast is the same to the last bit."""
    model, rng = build(name, FORMATS[0]), np.random.default_rng(1)
    # Weights of 0, as before training, would hide a path.
    model.set_weights([weight + rng.normal(0, 0.1, weight.shape) for weight in model.get_weights()])
    frames = random_frames(FORMATS[0], 7)[0]
    changed = frames.copy()
    changed[3:] ^= 0x40
    forecasts, targets = [], []
    for place, each in enumerate((frames, changed)):
        np.save(tmp_path / f"{place}.npy", each)
        window = {"input_frames": 3, "predict_frames": 4, "axes": "tyxc"}
        batch = open_windows(tmp_path / f"{place}.npy", **window).batch([0])
        forecasts.append(np.asarray(model.predict_on_batch(batch[0])))
        targets.append(batch[1])
    assert not (targets[0] == targets[1]).any()
    assert np.array_equal(*forecasts)


def test_a_longer_forecast_begins_like_a_shorter_one() -> None:
    """Frame k of the forecast depends on nothing after it: a longer horizon changes nothing."""
    short = trained("convlstm", FORMATS[0])
    long = build("convlstm", FORMATS[0], 7)
    long.set_weights(short.get_weights())
    inputs = random_frames(FORMATS[0], 3)
    difference = long.predict_on_batch(inputs)[:, :4] - short.predict_on_batch(inputs)
    assert abs(difference).max() < 1e-6


def test_warp_is_bilinear_and_stops_at_the_edges() -> None:
    """Against plain loops, with flows that point far outside."""
    from framewin.models.layers import warp

    rng = np.random.default_rng(0)
    image = rng.random((2, 5, 6, 2)).astype(np.float32)
    flow = rng.normal(0, 3, (2, 3, 5, 6, 2)).astype(np.float32)
    found = np.asarray(warp(image, flow))
    for b, k, y, x in np.ndindex(2, 3, 5, 6):
        row = np.clip(y + flow[b, k, y, x, 0], 0, 4)
        col = np.clip(x + flow[b, k, y, x, 1], 0, 5)
        wanted = 0.0
        for near_row in {int(row), min(int(row) + 1, 4)}:
            for near_col in {int(col), min(int(col) + 1, 5)}:
                share = (1 - abs(row - near_row)) * (1 - abs(col - near_col))
                wanted = wanted + share * image[b, near_row, near_col]
        np.testing.assert_allclose(found[b, k, y, x], wanted, atol=1e-5)


def test_a_mix_contains_the_mean_of_the_inputs() -> None:
    """With the weights of a lead time set, the residual models give the mean exactly."""
    for name in ("convlstm-residual", "simvp"):
        model = build(name, FORMATS[1])
        lead_mix = next(w for w in model.weights if w.path.endswith("lead_mix"))
        inputs = random_frames(FORMATS[1], 3)
        mean = to_unit(inputs).mean(axis=1, keepdims=True)
        lead_mix.assign(np.array([[2.0, 2.0, 2.0, -2.0, -2.0]] * 4))
        np.testing.assert_allclose(
            model.predict_on_batch(inputs), np.repeat(mean, 4, axis=1), atol=1e-4
        )


def test_integers_stay_in_range_and_floats_need_not() -> None:
    """Forecasts of unsigned integers are in 0..1; depth or temperatures may be anything."""
    for frame_format, bounded in ((FORMATS[0], True), (FORMATS[2], False)):
        model = build("convlstm-residual", frame_format)
        weights = [np.full_like(w, 0.5) for w in model.get_weights()]
        model.set_weights(weights)
        highest = model.predict_on_batch(random_frames(frame_format, 3)).max()
        assert (highest <= 1) == bounded


def test_saved_models_load_in_a_fresh_process(tmp_path: Path) -> None:
    """Safe mode on, the same forecasts to the last bit."""
    inputs = random_frames(FORMATS[1], 3)
    np.save(tmp_path / "inputs.npy", inputs)
    wanted = {}
    for name in NAMES:
        model = build(name, FORMATS[1])
        # Random weights: the first ones have zeros that would hide much.
        rng = np.random.default_rng(0)
        model.set_weights([rng.normal(0, 0.1, w.shape) for w in model.get_weights()])
        model.save(tmp_path / f"{name}.keras")
        wanted[name] = model.predict_on_batch(inputs)
    script = (
        "import sys, keras, numpy as np, framewin.models\n"
        "inputs = np.load('inputs.npy')\n"
        "for name in sys.argv[1:]:\n"
        "    model = keras.models.load_model(f'{name}.keras')\n"
        "    np.save(f'{name}.npy', model.predict_on_batch(inputs))\n"
    )
    command = [sys.executable, "-c", script, *NAMES]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    for name in NAMES:
        assert np.array_equal(np.load(tmp_path / f"{name}.npy"), wanted[name]), name


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_give_the_same_forecasts(tmp_path: Path, backend: str) -> None:
    """Of the same weights: the models are Keras operations only."""
    import_or_skip(backend)
    inputs = random_frames(FORMATS[0], 3)
    np.save(tmp_path / "inputs.npy", inputs)
    for name in TRAINABLE:
        model = trained(name, FORMATS[0])
        model.save_weights(tmp_path / f"{name}.weights.h5")
        np.save(tmp_path / f"{name}.npy", model.predict_on_batch(inputs))
    script = (
        "import sys, numpy as np\n"
        "from framewin.models import build_model\n"
        "from framewin.schema import FrameFormat\n"
        "for name in sys.argv[2:]:\n"
        "    frame = FrameFormat(16, 16, 1, 'uint8')\n"
        "    model = build_model(name, 3, 4, frame, {'filters': 4, 'layers': 1})\n"
        "    model.load_weights(f'{sys.argv[1]}/{name}.weights.h5')\n"
        "    out = model.predict_on_batch(np.load(sys.argv[1] + '/inputs.npy'))\n"
        "    wanted = np.load(f'{sys.argv[1]}/{name}.npy')\n"
        "    np.testing.assert_allclose(out, wanted, atol=1e-4)\n"
    )
    environment = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-c", script, tmp_path, *TRAINABLE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_same_seed_gives_the_same_weights(tf: ModuleType) -> None:
    """And another seed others."""
    for name in TRAINABLE:
        first, same, other = (build(name, FORMATS[0], seed=s).get_weights() for s in (1, 1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
        assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_options_of_a_model_are_stated() -> None:
    """Defaults included, with the patch size that frames of this size get."""
    from framewin.models import all_options, build_model

    frame_format = FrameFormat(272, 640, 3, "uint8")
    assert all_options("simvp", frame_format, {"filters": 8}) == {
        "filters": 8,
        "layers": 4,
        "patch_size": 16,
        "dropout": 0.0,
    }
    assert all_options("convlstm-residual", FORMATS[0], {})["patch_size"] == 1
    with pytest.raises(ValueError, match="patch_size must be from 1 to 16, got 32"):
        all_options("simvp", FORMATS[0], {"patch_size": 32})
    with pytest.raises(ValueError, match="the model persistence has no option 'filters'"):
        build_model("persistence", 3, 4, FORMATS[0], {"filters": 4})
