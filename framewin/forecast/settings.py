"""How a predictor is trained: the one place of every setting, its default and its limits."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from framewin.model_table import MODELS, check_model_name

LOSSES = ("mse", "mae", "mae+mse", "bce", "ssim")
NORMALIZE = ("auto", "unit", "range", "standard")
DEFAULT_EPOCHS = 12
MOST = 2**31 - 1
"""Of whatever is counted."""
MOST_FRAMES = 1000
"""Of a window's inputs or predictions: models are built frame by frame, also those that a run of a
stranger names."""
SHUFFLES: dict[str, bool | str] = {"true": True, "blocks": "blocks"}
"""Word on the command line to value."""
AUGMENT_SWITCHES = ("reverse_time", "flip_horizontal", "flip_vertical", "turns")
AUGMENT_AMOUNTS = ("shift", "rotation", "shear", "brightness", "noise")
AUGMENT_RANGES = ("zoom", "contrast")


def _setting(default: Any, help_text: str, **limits: Any) -> Any:
    return field(default=default, metadata={"help": help_text, **limits})


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a predictor is trained; each field is an option of `framewin train`."""

    input_frames: int = _setting(5, "Frames the predictor sees.", least=1, most=MOST_FRAMES)
    predict_frames: int = _setting(5, "Frames it predicts.", least=1, most=MOST_FRAMES)
    frame_step: int = _setting(1, "Distance between neighbouring frames of a window.", least=1)
    window_stride: int = _setting(
        1, "Distance between the starts of neighbouring windows.", least=1
    )
    lead_gap: int = _setting(0, "Frames skipped between inputs and predictions.", least=0)
    model: str = _setting("convlstm-residual", "A model of framewin, or package.module:build.")
    filters: int | None = _setting(None, "Channels of each hidden layer.", least=1)
    layers: int | None = _setting(None, "Hidden layers.", least=1)
    patch_size: int | None = _setting(
        None, "Side of the patches of a frame; by its size where not given.", least=1
    )
    dropout: float | None = _setting(None, "Share of hidden channels dropped in training.")
    next_frame: bool = _setting(
        False, "The model's output k is the frame after input k, as in the Keras example."
    )
    loss: str = _setting("mse", f"One of {', '.join(LOSSES)}.")
    epochs: int | None = _setting(
        None,
        f"Passes over the training windows; {DEFAULT_EPOCHS}, or as many as --minutes allow.",
        least=1,
    )
    minutes: float | None = _setting(None, "Stop after so much training, and plan for it.")
    patience: int = _setting(
        0, "Stop after so many epochs without a better validation loss; 0: never.", least=0
    )
    batch_size: int = _setting(8, "Windows per step, all devices together.", least=1)
    normalize: str = _setting(
        "auto",
        f"{', '.join(NORMALIZE)}: what a model computes with; auto: the range of the training part "
        "where it is a small part of the dtype's, else unit scale.",
    )
    shuffle: bool | Literal["blocks"] = _setting(
        True,
        "In full, or by blocks, so that frames that do not fit into memory are read once an epoch.",
        words=SHUFFLES,
    )
    read_ahead: int = _setting(
        0, "Batches whose frames are asked for ahead, for frames that are not in memory.", least=0
    )
    learning_rate: float = _setting(2e-3, "Peak of the schedule.")
    weight_decay: float = _setting(0.0, "Of AdamW; 0 is Adam.")
    clip_norm: float = _setting(1.0, "Largest norm of all gradients together.")
    augment: str | None = _setting(
        None, "Changes of training windows: flip, turns, ..., rotation=10, zoom=0.9:1.1."
    )
    validation_share: float = _setting(
        0.2, "Share of the clips, or of every clip's frames, to choose the best epoch by."
    )
    test_share: float = _setting(0.1, "Share that is only scored at the end; 0 for none.")
    split: str | None = _setting(
        None, "File of framewin split with parts train, validation and perhaps test, for shares."
    )
    cache: str | None = _setting(None, "memory, or a file: where compressed frames are decoded to.")
    devices: int = _setting(1, "GPUs, or CPU devices where there is none.", least=1)
    mixed_precision: bool = _setting(False, "Compute in bfloat16; weights and output are float32.")
    deterministic: bool = _setting(False, "Only operations that repeat to the last bit.")
    checkpoint_minutes: float = _setting(5.0, "Longest time of training that a kill loses.")
    seed: int = _setting(
        0, "Of the split, the order and the first weights.", least=0, most=2**63 - 1
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata.get("least")
            most = each.metadata.get("most", MOST)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{each.name} must be finite, got {value}")
            if value is not None and least is not None and value < least:
                raise ValueError(f"{each.name} must be >= {least}, got {value}")
            if value is not None and least is not None and value > most:
                raise ValueError(f"{each.name} must be <= {most}, got {value}")
        for name in ("learning_rate", "clip_norm", "minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        for name in ("weight_decay", "checkpoint_minutes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        self._check_shares()
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        check_model_name(self.model)
        if self.next_frame and (self.model in MODELS or self.lead_gap):
            raise ValueError(
                "next_frame is for models of your own without a lead_gap, got "
                f"model={self.model!r} and lead_gap={self.lead_gap}"
            )
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        self._check_normalize()
        # Not by `in`, to which 1 is True.
        if self.shuffle is not True and self.shuffle != "blocks":
            raise ValueError(f"shuffle must be True or 'blocks', got {self.shuffle!r}")
        augment_options(self.augment)
        if self.batch_size % self.devices:
            raise ValueError(
                f"batch_size must be a multiple of devices, got {self.batch_size} for "
                f"{self.devices} devices"
            )

    def _check_normalize(self) -> None:
        if self.normalize not in NORMALIZE:
            allowed = ", ".join(NORMALIZE)
            raise ValueError(f"normalize must be one of {allowed}, got {self.normalize!r}")
        if self.normalize in ("range", "standard") and self.model not in MODELS:
            raise ValueError(
                f"normalize {self.normalize!r} is for models of framewin; {self.model} must scale "
                "frames itself"
            )
        if self.normalize == "standard" and self.loss == "bce":
            raise ValueError("loss 'bce' needs frames in 0..1, not normalize 'standard'")

    def _check_shares(self) -> None:
        if not 0 < self.validation_share < 1:
            raise ValueError(
                f"validation_share must be between 0 and 1, got {self.validation_share}"
            )
        if not 0 <= self.test_share < 1:
            raise ValueError(f"test_share must be in [0, 1), got {self.test_share}")
        if self.validation_share + self.test_share >= 1:
            raise ValueError(
                "validation_share and test_share must leave something to train on, got "
                f"{self.validation_share} and {self.test_share}"
            )

    @property
    def window(self) -> dict[str, int]:
        """The arguments of `FrameWindowDataset` that say what a window is."""
        names = ("input_frames", "predict_frames", "frame_step", "window_stride", "lead_gap")
        return {name: getattr(self, name) for name in names}

    @property
    def model_options(self) -> dict[str, Any]:
        """What was chosen for the model's builder; the rest is the builder's to choose."""
        names = ("filters", "layers", "patch_size", "dropout")
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}

    @property
    def output_frames(self) -> int:
        """Frames that one call of the model gives."""
        return self.input_frames if self.next_frame else self.predict_frames

    @property
    def most_epochs(self) -> int | None:
        """Epochs after which training ends; None where only the minutes end it."""
        return DEFAULT_EPOCHS if self.epochs is None and self.minutes is None else self.epochs

    def record(self) -> dict[str, Any]:
        """JSON values, every field by its name."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TrainSettings:
        """What `record` gave; fields that are not there have their defaults, or what was done
        before there were such fields.

        Raises:
            ValueError: An unknown name, or a value of another type or out of range.
        """
        hints = get_type_hints(cls)
        for name, value in record.items():
            if name not in hints:
                raise ValueError(f"{name!r} is no setting; a newer framewin may know it")
            if not _fits(value, hints[name]):
                raise ValueError(f"{name} cannot be {value!r}")
        return cls(**{"normalize": "unit", **record})


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (types.UnionType, Union):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, hint)


def augment_options(text: str | None) -> dict[str, Any]:
    """Arguments of `framewin.Augment` from a text.

    >>> augment_options("flip,turns,rotation=10,zoom=0.9:1.1")
    {'flip_horizontal': True, 'flip_vertical': True, 'turns': True, 'rotation': 10.0, \
'zoom': (0.9, 1.1)}

    Raises:
        ValueError: A word that is not one of them.
    """
    found: dict[str, Any] = {}
    for word in filter(None, (text or "").split(",")):
        name, _, amount = word.strip().partition("=")
        name = name.replace("-", "_")
        try:
            if name == "flip" and not amount:
                found |= {"flip_horizontal": True, "flip_vertical": True}
            elif name in AUGMENT_SWITCHES and not amount:
                found[name] = True
            elif name in AUGMENT_AMOUNTS:
                found[name] = float(amount)
            elif name in AUGMENT_RANGES:
                low, high = amount.split(":")
                found[name] = (float(low), float(high))
            else:
                raise ValueError
        except ValueError:
            amounts = ", ".join(f"{each}=NUMBER" for each in AUGMENT_AMOUNTS)
            ranges = ", ".join(f"{each}=LOW:HIGH" for each in AUGMENT_RANGES)
            switches = ", ".join(("flip", *AUGMENT_SWITCHES))
            raise ValueError(
                f"augment has {word!r}; it may have {switches}, {amounts}, {ranges}, "
                "separated by commas"
            ) from None
    return found
