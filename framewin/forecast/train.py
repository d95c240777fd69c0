"""Training a predictor on a store: split, fit, score, show."""

from __future__ import annotations

import math
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import framewin
from framewin.augment import Augment
from framewin.dataset import FrameWindowDataset
from framewin.errors import StoreError, TrainingError, one_line
from framewin.forecast.normalize import model_scale
from framewin.forecast.runs import (
    CHECKPOINT_FILE,
    HISTORY_FILE,
    LOG_FOLDER,
    METRICS_FILE,
    MODEL_FILE,
    RUN_FILE,
    SPLIT_FILE,
    Run,
    load_run,
    run_record,
    save_model,
    write_json,
)
from framewin.forecast.runs import WEIGHTS_FILE as WEIGHTS_FILE
from framewin.forecast.scoring import DataRange, data_range_of
from framewin.forecast.settings import TrainSettings, augment_options
from framewin.forecast.validation import Evaluation, evaluate, examples
from framewin.frames import Frames, open_frames
from framewin.model_table import MODELS, ModelScale
from framewin.optional import require
from framewin.pictures.figures import THEME, sheet, write_gif
from framewin.remote import Location, refuse_url
from framewin.splitting import SplitPart, SplitParts, read_table
from framewin.stores import folder_lock
from framewin.testing import look_ahead

__all__ = [
    "GIF_FILE",
    "LOG_FOLDER",
    "SHEET_FILE",
    "TrainReport",
    "TrainSettings",
    "resume",
    "train",
]

PARTS = ("train", "validation", "test")
FEWEST_WINDOWS = 5
"""Of a part that is held back from the end of clips, where there are enough frames."""
MOST_HELD_BACK = 1 / 3
SHOWN_WINDOWS = 4

GIF_FILE = "forecast.gif"
SHEET_FILE = "forecast.png"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class TrainReport:
    """A finished run."""

    run: Path
    """Folder with everything below."""
    model: str
    """The model and its options, in words."""
    split: str
    """How the parts were kept apart, in words."""
    windows: Mapping[str, int]
    """Part name to number of windows."""
    parameters: int
    """Weights of the model."""
    lead_gap: int
    """Frames skipped between the last input and the first predicted frame."""
    epochs: int
    """Epochs trained."""
    best_epoch: int
    """The epoch that was kept, from 1; 0 where none beat the untrained model, which repeats the
    last frame, or nearly so."""
    part: str
    """The part that was scored."""
    evaluation: Evaluation
    """On that part, with the best weights."""
    seconds: float
    """Spent on training, over all resumptions."""
    data_wait: float | None
    """Share of the time of training steps that they waited for batches, but for the first ten
    steps after each start; None where there were no more. Of several machines, on this one."""


def train(
    store: str | Location, out: str | Path, settings: TrainSettings, *, say: Say | None = None
) -> TrainReport:
    """Train a predictor on a store and score it on windows that nothing was chosen by.

    Clips are dealt to the parts train, validation and test; where there are fewer clips than
    parts, every clip is cut by time, with one window span left out between the parts. The
    weights of the epoch with the least validation loss are kept.

    Args:
        store: Made by `framewin convert`.
        out: The run folder to make; see `framewin.forecast.runs`. At the end it also holds
            metrics.json, forecast.gif and forecast.png.
        settings: See `TrainSettings`.
        say: Called with lines of progress; by default they go to stderr.

    Raises:
        StoreError: No such store, or `out` exists.
        TrainingError: No window fits into the store, it cannot be split, the model is not fit
            for it or sees what it must predict, the loss became NaN, or another worker of
            TF_CONFIG was lost.
        MissingDependencyError: TensorFlow is not installed.
    """
    refuse_url(out, "a run is written to this machine, give --out a path")
    devices = _start(settings)
    dataset = _open(_frames(store, settings), settings)
    split, parts = (_split if settings.split is None else _given_split)(dataset, settings)
    _check_batches(parts["train"], settings, devices)
    settings = replace(settings, cache=_absolute(settings.cache))
    if settings.split is not None:
        settings = replace(settings, split=_absolute(settings.split))
        settings = replace(settings, test_share=settings.test_share if "test" in parts else 0.0)
    run = Path(out)
    with devices.together():
        learns = settings.model in MODELS and settings.model != "persistence"
        scale = model_scale(parts["train"], settings.normalize) if learns else None
        model, chosen = _built(dataset, settings, devices, scale)
        record = run_record(dataset, settings, chosen, _versions(), split, scale)
        if devices.worker == 0:
            _make_run(run, parts, record)
        with _at_work(run, devices):
            # Of several machines, the first one has written it by now.
            devices.meet()
            made = load_run(run, None if settings.model in MODELS else settings.model)
            return _carried_out(made, model, parts, devices, say or _to_stderr)


def resume(folder: str | Path, *, model: str | None = None, say: Say | None = None) -> TrainReport:
    """Go on with a training that was stopped, from its last checkpoint, or from its beginning
    where it was stopped before there was one.

    On the same machine and with `deterministic`, the weights become those of a training that was
    never stopped.

    Args:
        folder: The run folder.
        model: As for `framewin.forecast.runs.load_run`.
        say: As for `train`.

    Raises:
        StoreError: It is no run folder, another process trains it, or its store has changed.
        TrainingError: The training is finished, or its checkpoint was removed.
    """
    run = load_run(folder, model)
    begun = (run.folder / CHECKPOINT_FILE).exists()
    if not begun and (run.folder / METRICS_FILE).exists():
        raise TrainingError(f"{run.folder} is finished, so there is nothing to resume")
    if not begun and (run.folder / HISTORY_FILE).exists():
        raise TrainingError(f"{run.folder} has lost its {CHECKPOINT_FILE}; train again")
    devices = _start(run.settings)
    run.check_model()
    parts = _parts_again(run)
    _check_batches(parts["train"], run.settings, devices)
    with devices.together(), _at_work(run.folder, devices):
        again = run if begun else None
        built, _ = _built(parts["train"], run.settings, devices, run.scale, again)
        return _carried_out(run, built, parts, devices, say or _to_stderr, resumed=begun)


@contextmanager
def _at_work(run: Path, devices: Any) -> Iterator[None]:
    """Keep others from training the same run; say in a line what cannot be written."""
    try:
        # Of several machines, the first one writes.
        with folder_lock.locked(run) if devices.worker == 0 else nullcontext():
            yield
    except OSError as exc:
        if exc.errno is None:
            raise
        raise StoreError(
            f"{exc.filename or run}: {one_line(exc)}; when that is mended, go on with "
            f"framewin train --resume {run}"
        ) from exc


def _start(settings: TrainSettings) -> Any:
    """Check what is installed, and choose the devices before TensorFlow does anything else."""
    keras = require("keras", extra="tensorflow")
    tf = require("tensorflow", extra="tensorflow")
    require("tensorboard", extra="tensorflow")
    if keras.config.backend() != "tensorflow":
        raise TrainingError(
            f"training needs Keras on TensorFlow, but it is on {keras.config.backend()}; set "
            "KERAS_BACKEND=tensorflow"
        )
    from framewin.forecast.devices import choose_devices

    devices = choose_devices(settings)
    keras.utils.set_random_seed(settings.seed % 2**32)
    if settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    return devices


def _carried_out(
    run: Run,
    model: Any,
    parts: Mapping[str, FrameWindowDataset],
    devices: Any,
    say: Say,
    *,
    resumed: bool = False,
) -> TrainReport:
    from framewin.forecast.fitting import Fit

    fit = Fit(model, parts, run.folder, run.settings, devices, say, run.scale)
    if resumed:
        fit.resume()
    else:
        _say_what_begins(model, parts, run, devices, say)
        fit.begin()
        if model.trainable_variables:
            fit.say_waiting()
    if model.trainable_variables:
        fit.train()
    devices.meet()
    return _finished(run, parts, fit.progress, writes=devices.worker == 0)


def _finished(
    run: Run, parts: Mapping[str, FrameWindowDataset], progress: Any, *, writes: bool
) -> TrainReport:
    """Score the weights that were kept, as anyone will load them, and draw forecasts."""
    settings, part = run.settings, "test" if "test" in parts else "validation"
    forecaster = run.forecaster(nodata=parts[part].nodata)
    report = TrainReport(
        run=run.folder,
        model=_in_words(run.model_name, run.model_options),
        split=run.record["split"],
        windows={name: len(each) for name, each in parts.items()},
        parameters=run.model.count_params(),
        lead_gap=settings.lead_gap,
        epochs=progress.epoch,
        best_epoch=progress.best_epoch,
        part=part,
        evaluation=evaluate(
            forecaster,
            parts[part],
            data_range=_data_range(parts["train"]),
            batch_size=settings.batch_size,
        ),
        seconds=progress.seconds,
        data_wait=progress.data_wait,
    )
    if writes:
        _write_model(run)
        shown = examples(forecaster, parts[part], SHOWN_WINDOWS)
        sheet(shown).write(run.folder / SHEET_FILE, THEME)
        write_gif(run.folder / GIF_FILE, shown)
        write_json(run.folder / METRICS_FILE, _metrics_record(report))
        (run.folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    return report


def _data_range(training: FrameWindowDataset) -> DataRange | None:
    """What PSNR refers to, as in `framewin evaluate`; None of frames of a single value."""
    try:
        return data_range_of(training.frame_format, training, None)
    except TrainingError:
        return None


def _write_model(run: Run) -> None:
    try:
        save_model(run.model, run.folder / MODEL_FILE)
    except (NotImplementedError, TypeError, ValueError) as exc:
        # A model of the user's own need not be one that Keras can write whole.
        what = " ".join(str(exc).split())[:200]
        print(f"{MODEL_FILE} was left out, Keras cannot write it: {what}", file=sys.stderr)


def _built(
    dataset: FrameWindowDataset,
    settings: TrainSettings,
    devices: Any,
    scale: ModelScale | None,
    run: Run | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The model, within the strategy of the devices, and its name and options."""
    from framewin.models import all_options, build_model

    if run is not None:
        with devices.strategy.scope():
            return run.build(), {"name": run.model_name, "options": run.model_options}
    try:
        options = all_options(settings.model, dataset.frame_format, settings.model_options)
        # Keras draws from 32 bits, and gives each layer a seed of its own from there on.
        options |= {"seed": settings.seed % 2**31} if settings.model in MODELS else {}
        with devices.strategy.scope():
            model = build_model(
                settings.model,
                settings.input_frames,
                settings.output_frames,
                dataset.frame_format,
                options,
                mixed_precision=settings.mixed_precision,
                scale=scale,
            )
    except ValueError as exc:
        raise TrainingError(f"{settings.model} cannot be built: {exc}") from None
    if settings.next_frame:
        _refuse_a_look_ahead(model, dataset, settings)
    return model, {"name": settings.model, "options": options}


def _refuse_a_look_ahead(model: Any, dataset: FrameWindowDataset, settings: TrainSettings) -> None:
    shape = (settings.input_frames, *dataset.frame_format.shape)
    try:
        ahead = look_ahead(model, shape, dtype=dataset.frame_format.dtype)
    except ValueError as exc:
        raise TrainingError(f"{settings.model} cannot be a next-frame model: {exc}") from None
    if ahead is not None:
        raise TrainingError(f"{settings.model} is not causal: {ahead}")


def _frames(store: str | Location, settings: TrainSettings) -> Frames:
    try:
        return open_frames(store, cache=settings.cache)
    except ValueError as exc:
        raise TrainingError(f"{store} cannot be trained on: {exc}") from exc


def _open(
    frames: Frames, settings: TrainSettings, split: SplitPart | None = None
) -> FrameWindowDataset:
    """All windows or a part; of a store with no-data pixels, with weights that leave these out."""
    window: dict[str, Any] = settings.window
    try:
        augment = augment_options(settings.augment)
        weighted = frames.meta.nodata is not None
        if weighted and settings.next_frame:
            raise ValueError("next_frame cannot leave out pixels without data")
        Augment(**augment).check(frames.meta.frame_format.shape, frames.meta.nodata)
        return FrameWindowDataset(
            frames,
            **window,
            split=split,
            sample_weight="nodata" if weighted else None,
        )
    except ValueError as exc:
        raise TrainingError(f"{frames.path} cannot be trained on: {exc}") from exc


def _check_batches(part: FrameWindowDataset, settings: TrainSettings, devices: Any) -> None:
    """Before there is a run folder."""
    from framewin.adapters.read_ahead import ReadAhead
    from framewin.forecast.fitting import training_order

    try:
        batches = part.batches(**training_order(settings, devices))
    except ValueError as exc:
        raise TrainingError(
            f"an epoch has no step for each device: {exc}; give a smaller --batch-size, or fewer "
            "devices"
        ) from None
    try:
        ReadAhead(batches, settings.read_ahead)
    except ValueError as exc:
        raise TrainingError(str(exc)) from None


def _parts_again(run: Run) -> dict[str, FrameWindowDataset]:
    """The parts that the split file of a run holds."""
    frames = run.frames(cache=run.settings.cache)
    table = read_table(run.folder / SPLIT_FILE, frames)
    weight: Literal["nodata"] | None = None if frames.meta.nodata is None else "nodata"
    names = [name for name in PARTS if name in table.parts]
    return {name: run.dataset(name, frames, sample_weight=weight) for name in names}


def _split(dataset: FrameWindowDataset, settings: TrainSettings) -> tuple[str, SplitParts]:
    """By clip where every part gets one with windows, else by time; and which it was, in words."""
    usable = sum(count > 0 for count in dataset.windows_per_clip().values())
    held = {"validation": settings.validation_share}
    held |= {"test": settings.test_share} if settings.test_share else {}
    try:
        if usable > len(held):
            parts = dataset.split(_fractions(held), by="clip", seed=settings.seed)
            used = [f"{len(parts[name].windows_per_clip())} for {name}" for name in held]
            return f"by clip, {' and '.join(used)} of {usable}", parts
        least = _least_share(dataset, len(held), int(dataset.clips.clip_lengths.max()))
        if usable > 1 and least > max(held.values()):
            # Cut in a row, the clips have room together.
            least = _least_share(dataset, len(held), dataset.clips.num_frames)
        held = {name: max(share, least) for name, share in held.items()}
        parts = dataset.split(_fractions(held), by="time")
    except ValueError as exc:
        hint = "; or do without a test part (--test-share 0)" if "test" in held else ""
        raise TrainingError(f"{dataset.path} cannot be split: {exc}{hint}") from exc
    shares = [f"{share:.0%} for {name}" for name, share in held.items()]
    left_out = f"{dataset.spec.span} frames before each left out"
    return f"by time, the last {' and '.join(shares)}, {left_out}", parts


def _given_split(dataset: FrameWindowDataset, settings: TrainSettings) -> tuple[str, SplitParts]:
    """The parts of a split file that was made before."""
    file = Path(str(settings.split))
    table = read_table(file, dataset.source)
    names = [name for name in PARTS if name in table.parts]
    if names[:2] != list(PARTS[:2]):
        raise TrainingError(
            f"{file} has the parts {', '.join(table.parts)}; training needs train and validation, "
            "and scores test where there is one"
        )
    parts = {name: _open(dataset.source, settings, SplitPart(name, file)) for name in names}
    return f"by {table.by}, as in {file.name}", SplitParts(parts, table)


def _fractions(held: Mapping[str, float]) -> dict[str, float]:
    return {"train": 1 - sum(held.values()), **held}


def _least_share(dataset: FrameWindowDataset, parts: int, frames: int) -> float:
    """Of few frames, what a few windows need, but not so much that too little is trained on."""
    spec = dataset.spec
    needed = spec.span + (FEWEST_WINDOWS - 1) * spec.window_stride
    return min(MOST_HELD_BACK, needed / max(1, frames - parts * spec.span))


def _make_run(run: Path, parts: SplitParts, record: Mapping[str, Any]) -> None:
    """Make the folder with what says how it is trained; then a training can be resumed."""
    try:
        run.mkdir(parents=True)
    except FileExistsError:
        unfinished = (run / RUN_FILE).exists() and not (run / METRICS_FILE).exists()
        what = f"go on with framewin train --resume {run}" if unfinished else "remove it"
        raise StoreError(f"{run} exists already; {what} or choose another --out") from None
    except OSError as exc:
        raise StoreError(f"{run} cannot be made: {one_line(exc)}") from exc
    try:
        parts.save(run / SPLIT_FILE)
        write_json(run / RUN_FILE, record)
    except StoreError:
        shutil.rmtree(run, ignore_errors=True)
        raise
    except OSError as exc:
        shutil.rmtree(run, ignore_errors=True)
        raise StoreError(f"{run} cannot be written: {one_line(exc)}") from exc


def _absolute(cache: str | None) -> str | None:
    return cache if cache in (None, "memory") else str(Path(cache).resolve())


def _versions() -> dict[str, str]:
    # Not by the package, which may be tensorflow-cpu.
    modules = (require(name, extra="tensorflow") for name in ("tensorflow", "keras", "numpy"))
    return {
        "framewin": framewin.__version__,
        "python": platform.python_version(),
        **{module.__name__: module.__version__ for module in modules},
    }


def _say_what_begins(
    model: Any,
    parts: Mapping[str, FrameWindowDataset],
    run: Run,
    devices: Any,
    say: Say,
) -> None:
    from framewin.models import all_options

    settings = run.settings
    options = all_options(settings.model, parts["train"].frame_format, settings.model_options)
    say(f"model {_in_words(settings.model, options)}; {model.count_params():,} weights")
    if run.scale is not None:
        ranges = ", ".join(
            f"{offset:g} to {offset + divisor:g}"
            for offset, divisor in zip(run.scale.offset, run.scale.divisor, strict=True)
        )
        say(f"the model sees 0..1 for values of {ranges}, and losses are of that scale")
    left_over = len(parts["train"]) % settings.batch_size
    if devices.count > 1 and left_over:
        say(f"{devices.count} devices: the last {left_over} windows of each epoch are left out")


def _in_words(name: str, options: Mapping[str, Any]) -> str:
    given = [f"{key.replace('_', ' ')} {value}" for key, value in options.items() if key != "seed"]
    return ", ".join([name, *given])


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _metrics_record(report: TrainReport) -> dict[str, Any]:
    evaluation = report.evaluation
    record = {
        "part": report.part,
        "windows": evaluation.windows,
        "epochs": report.epochs,
        "best_epoch": report.best_epoch,
        "parameters": report.parameters,
        "seconds": round(report.seconds, 3),
        "data_wait": report.data_wait,
        "skill": evaluation.skill,
        "model": asdict(evaluation.model),
        "last_frame": asdict(evaluation.last_frame),
    }
    return {name: _finite(value) for name, value in record.items()}


def _finite(value: Any) -> Any:
    """JSON has no infinity, as the PSNR of a perfect forecast, and no NaN, as the score of a lead
    time without data: both are written as null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
