"""The folder of a training run: what is in it, and how it is read again.

    run.json          store, model, settings, versions
    split.json        which clips or frames were for training, validation and test
    model.weights.h5  weights of the best epoch; all that framewin itself loads
    model.keras       the same model whole, for `keras.models.load_model`
    history.csv       losses of each epoch, and the share of its steps' time that was waiting
    metrics.json      scores at the end, and that share of the whole run
    logs/             curves and pictures for TensorBoard
    checkpoint.npz    only while training is not finished

A run may come from someone else: its JSON is checked, its weights must be plain arrays of the
shapes that the model has, and nothing in it is unpickled or executed. Only where `run.json` names
a model of the user's own, `package.module:build`, that module is imported, from Python's path or
the current folder, but never from the run folder, and which file it was is said on stderr. It must
declare the function, `FRAMEWIN_BUILDERS = ["build"]`, or the user must name the model, too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.errors import FormatVersionError, StoreError, TrainingError
from framewin.forecast.settings import TrainSettings
from framewin.frames import Frames, open_frames
from framewin.model_table import MODELS, ModelScale, check_model_name
from framewin.remote import Location, location
from framewin.schema import FrameFormat
from framewin.splitting import SplitPart
from framewin.stores import durable
from framewin.windows.spec import WindowSpec

RUN_FORMAT = 1
RUN_FILE = "run.json"
SPLIT_FILE = "split.json"
WEIGHTS_FILE = "model.weights.h5"
MODEL_FILE = "model.keras"
HISTORY_FILE = "history.csv"
METRICS_FILE = "metrics.json"
LOG_FOLDER = "logs"
CHECKPOINT_FILE = "checkpoint.npz"
LEAST_WEIGHTS = 64
"""Of any model for each layer and square of filters: a 3x3 kernel to four gates or more."""
MOST_SPARE_WEIGHTS = 1000
"""Values in a weights file beyond those of the model: Keras adds some numbers of its own."""


@dataclass(frozen=True)
class Run:
    """A training run on disk; made by `load_run`."""

    folder: Path
    settings: TrainSettings
    store: Location
    """The store it was trained on."""
    identity: str
    """Of that store, as it was then."""
    frame_format: FrameFormat
    """Of the frames that the model takes."""
    model_name: str
    """One of `framewin.models.MODELS`, or `package.module:build`."""
    model_options: Mapping[str, Any]
    """What the model was built with."""
    record: Mapping[str, Any]
    """All of run.json."""
    scale: ModelScale | None = None
    """What the model computes with; None for unit scale."""
    asked: bool = False
    """Whether the user named the model, not only run.json."""

    @cached_property
    def model(self) -> Any:
        """The Keras model with the weights of the best epoch, built when it is first used.

        Raises:
            TrainingError: The weights are missing or not those of this model, or the module of a
                user's own model cannot be imported.
        """
        model = self.build()
        load_weights(model, self.folder / WEIGHTS_FILE)
        return model

    def build(self) -> Any:
        """The Keras model before training.

        Raises:
            TrainingError: It cannot be built, or is larger than its weights.
        """
        from framewin.models import build_model

        weights = self.folder / WEIGHTS_FILE
        # A file can claim arrays that it has no bytes of.
        self._refuse_more_than(min(values_of(weights), weights.stat().st_size))
        try:
            return build_model(
                self.model_name,
                self.settings.input_frames,
                self.settings.output_frames,
                self.frame_format,
                self.model_options,
                mixed_precision=self.settings.mixed_precision,
                run=self.folder,
                asked=self.asked,
                scale=self.scale,
            )
        except (ValueError, TypeError) as exc:
            raise TrainingError(
                f"{self.model_name} of {self.folder} cannot be built: {_line(exc)}"
            ) from None

    def check_model(self) -> None:
        """Refuse a model that neither framewin, nor its module, nor the user says to be one.

        Raises:
            TrainingError: See above, or its module cannot be imported.
        """
        from framewin.models.own import imported

        if self.model_name not in MODELS:
            imported(self.model_name, self.folder, asked=self.asked)

    def _refuse_more_than(self, values: int) -> None:
        """A model that is far larger than its file of weights is not even built."""
        if self.model_name not in MODELS:
            return
        filters, layers, patch = (
            self.model_options.get(name) or least
            for name, least in (("filters", 0), ("layers", 1), ("patch_size", 0))
        )
        least = LEAST_WEIGHTS * layers * filters**2 + patch**2
        if least > values:
            raise TrainingError(
                f"{self.folder / WEIGHTS_FILE} holds {values:,} values, the model of {RUN_FILE} "
                f"has more than {least:,}"
            )

    def forecaster(self, horizon: int | None = None, *, nodata: float | None = None) -> Any:
        """The model as something with `predict_on_batch`, for any number of frames ahead.

        Args:
            horizon: Frames to forecast, as many as it was trained for by default; see
                `framewin.forecast.rollout.Forecaster`.
            nodata: Pixel value of the inputs that stands for no data.
        """
        from framewin.forecast.rollout import Forecaster

        return Forecaster(
            self.model,
            horizon or self.settings.predict_frames,
            output_frames=self.settings.output_frames,
            next_frame=self.settings.next_frame,
            lead_gap=self.settings.lead_gap,
            nodata=nodata,
        )

    def dataset(
        self,
        part: str | None = "test",
        store: str | Location | Frames | None = None,
        *,
        predict_frames: int | None = None,
        cache: str | Path | None = None,
        sample_weight: Literal["nodata"] | None = None,
    ) -> FrameWindowDataset:
        """Windows as in training.

        Args:
            part: `"train"`, `"validation"` or `"test"`; None for all windows.
            store: Another store, or its opened frames, of which all windows are given; by default
                the store that was trained on, which must not have changed since.
            predict_frames: Frames to compare a forecast with, if not as many as in training.
            cache: As for `open_frames`.
            sample_weight: As for `FrameWindowDataset`.

        Raises:
            StoreError: A store or split that is missing or cannot be read, or the store changed.
            TrainingError: No such part, or frames of another format than the model takes.
        """
        window: dict[str, Any] = {**self.settings.window, "sample_weight": sample_weight}
        window["predict_frames"] = predict_frames or window["predict_frames"]
        frames = store if isinstance(store, Frames) else self.frames(store, cache=cache)
        if part is not None and frames.identity == self.identity:
            # The split was made for windows as in training; no horizon leads out of a part.
            span = WindowSpec(**self.settings.window).span
            window["split"] = SplitPart(part, self.folder / SPLIT_FILE, span)
        try:
            return FrameWindowDataset(frames, **window)
        except ValueError as exc:
            raise TrainingError(str(exc)) from None

    def frames(
        self, store: str | Location | None = None, *, cache: str | Path | None = None
    ) -> Frames:
        """The frames of the store that was trained on, or of another one; see `dataset`."""
        path = self.store if store is None else location(store)
        try:
            frames = open_frames(path, cache=cache)
        except ValueError as exc:
            raise TrainingError(str(exc)) from None
        if store is None and frames.identity != self.identity:
            raise StoreError(
                f"{path} has changed since {self.folder} was trained on it, so its split is void; "
                "give the store explicitly to use all its windows"
            )
        if frames.meta.frame_format != self.frame_format:
            raise TrainingError(
                f"{path} has frames of {frames.meta.frame_format}, the model of {self.folder} "
                f"takes {self.frame_format}"
            )
        return frames


def load_run(folder: str | Path, model: str | None = None) -> Run:
    """Read a run folder; the model and the windows are opened when they are asked for.

    Args:
        folder: Made by `framewin train`.
        model: The model of your own, `package.module:build`, that the run is known to be of; it is
            used in the place of what run.json names.

    Raises:
        ValueError: `model` is no such name.
        StoreError: No such folder, or its run.json is missing or damaged.
        FormatVersionError: It was written by a newer framewin.
    """
    folder = Path(folder)
    if model is not None:
        check_model_name(model)
    record = _read_record(folder)
    try:
        settings = TrainSettings.from_record(record["settings"])
        name = model or record["model"]["name"]
        options = dict(record["model"]["options"])
        if check_model_name(name) in MODELS:
            # The same types and limits as of the settings that they were chosen by.
            TrainSettings.from_record({**record["settings"], **options})
        if not isinstance(record["split"], str):
            raise ValueError(f"split cannot be {record['split']!r}")
        return Run(
            folder=folder,
            settings=settings,
            store=location(record["store"]),
            identity=str(record["identity"]),
            frame_format=_frame_format(record["frame"]),
            model_name=name,
            model_options=options,
            record=record,
            scale=ModelScale.from_record(record.get("scaling"), record["frame"]["channels"]),
            asked=model is not None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        reason = f"lacks {exc}" if isinstance(exc, KeyError) else str(exc)
        raise StoreError(f"{folder / RUN_FILE} is damaged: {reason}") from None


def _frame_format(record: Mapping[str, Any]) -> FrameFormat:
    for name, value in record.items():
        if type(value) is not (str if name == "dtype" else int):
            raise ValueError(f"{name} of a frame cannot be {value!r}")
    return FrameFormat(**record)


def _read_record(folder: Path) -> Any:
    path = folder / RUN_FILE
    if not path.is_file():
        what = "has no run.json" if folder.is_dir() else "does not exist"
        raise StoreError(f"{folder} {what}; expected a run folder made by framewin train")
    try:
        record = json.loads(path.read_text())
        version = record["format"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
        raise StoreError(f"{path} is not the record of a run ({type(exc).__name__})") from None
    if version != RUN_FORMAT:
        raise FormatVersionError(
            f"{path} has format {version!r}, this framewin reads {RUN_FORMAT}; update it"
        )
    return record


def run_record(
    dataset: FrameWindowDataset,
    settings: TrainSettings,
    model: Mapping[str, Any],
    versions: Mapping[str, str],
    split: str,
    scale: ModelScale | None = None,
) -> dict[str, Any]:
    """What `run.json` holds.

    Args:
        dataset: The windows that the run is made of.
        settings: How it is trained.
        model: `name` and `options` of the model, nothing left open.
        versions: Package to version.
        split: How the parts were kept apart, in words.
        scale: What the model computes with.
    """
    frame = {f.name: getattr(dataset.frame_format, f.name) for f in fields(FrameFormat)}
    return {
        "format": RUN_FORMAT,
        "store": str(dataset.path.resolve()),
        "identity": dataset.identity,
        "frames": dataset.clips.num_frames,
        "frame": frame,
        "model": dict(model),
        "scaling": None if scale is None else scale.record(),
        "split": split,
        "settings": asdict(settings),
        "versions": dict(versions),
    }


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON file that is there whole or as it was before."""
    durable.write_whole(path, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())


def save_weights(model: Any, path: Path) -> None:
    """Write a model's weights so that the file is there whole or as it was before.

    Raises:
        TrainingError: Keras wrote nothing.
    """
    file = _InMemory(path.name)
    model.save_weights(file)
    if not file.getvalue():
        # Keras before 3.10 writes to a file called so, not to this one.
        raise TrainingError(f"Keras wrote no weights for {path}; framewin needs keras>=3.10")
    durable.write_whole(path, file.getvalue())


def save_model(model: Any, path: Path) -> None:
    """Write a whole model so that the file is there whole or as it was before."""
    file = _InMemory(path.name)
    model.save(file)
    durable.write_whole(path, file.getvalue())


class _InMemory(io.BytesIO):
    """A file that Keras fills in memory: HDF5 on a disk that gets full ends the process.

    Keras knows the kind of a file by the end of its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __str__(self) -> str:
        return self._name


def load_weights(model: Any, path: Path) -> None:
    """Give a model the weights of a file that need not be trusted.

    Raises:
        TrainingError: No such file, one that holds anything but plain arrays, or one whose
            arrays are not those of the model.
    """
    expected = sum(int(np.prod(weight.shape)) for weight in model.variables)
    found = values_of(path)
    if found > expected + MOST_SPARE_WEIGHTS:
        raise TrainingError(f"{path} holds {found:,} values, the model has {expected:,}")
    try:
        model.load_weights(path)
    except (ValueError, OSError, KeyError, TypeError, RuntimeError) as exc:
        raise TrainingError(f"{path} does not hold this model's weights: {_line(exc)}") from None


def values_of(path: Path) -> int:
    """How many values a file of weights holds, or claims; it need not be trusted.

    Raises:
        TrainingError: No such file, or one that holds anything but plain arrays.
    """
    if not path.is_file():
        raise TrainingError(f"{path} does not exist, so the run has no weights")
    try:
        with h5py.File(path, "r") as file:
            return _plain_values(file, set())
    except (OSError, RuntimeError, KeyError, ValueError, RecursionError) as exc:
        raise TrainingError(f"{path} is not a file of weights: {_line(exc)}") from None


def _plain_values(group: h5py.Group, seen: set[int]) -> int:
    """Number of values in a group, all of whose members are groups and plain arrays of numbers."""
    values = 0
    for name in group:
        where = f"{group.name.rstrip('/')}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{where} is a link")
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        # A group that holds itself would never end.
        if address in seen:
            raise ValueError(f"{where} is there twice")
        seen.add(address)
        if isinstance(item, h5py.Group):
            values += _plain_values(item, seen)
        elif not isinstance(item, h5py.Dataset) or not _is_plain(item):
            raise ValueError(f"{where} is not a plain array of numbers")
        else:
            values += item.size or 0
    return values


def _is_plain(item: h5py.Dataset) -> bool:
    stored_here = not item.external and not item.is_virtual
    return bool(stored_here and item.chunks is None and item.dtype.kind in "fiub")


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:200]
