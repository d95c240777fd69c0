"""Pack video frames into mapped stores and train frame predictors from them.

framewin convert frames/ clips.zarr

from framewin import FrameWindowDataset
ds = FrameWindowDataset("clips.zarr", input_frames=5, predict_frames=5)
inputs, targets = ds[0]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framewin.augment import Augment
    from framewin.batches import Batches
    from framewin.conversion.run import ConvertReport, convert
    from framewin.conversion.settings import ConvertSettings
    from framewin.dataset import FrameWindowDataset, Window
    from framewin.errors import (
        FormatVersionError,
        FrameFormatError,
        FramewinError,
        MissingDependencyError,
        SourceError,
        StoreError,
        TrainingError,
    )
    from framewin.forecast.evaluate import EvaluationReport, evaluate
    from framewin.forecast.predict import PredictReport, predict
    from framewin.frames import Frames, open_frames
    from framewin.leaks import SplitReport, split_report
    from framewin.planning import ReadCost, ReadPlan, plan
    from framewin.process import keep_freed_memory
    from framewin.scaling import Scaling
    from framewin.sources.damage import Damaged
    from framewin.splitting import SplitPart, SplitParts
    from framewin.stores.fetch import FetchReport, fetch
    from framewin.stores.verify import VerifyReport, verify

__version__ = "0.1.0"

# Public name -> the module that defines it, imported on first use so that `import framewin`
# and `framewin --help` stay quick.
_HOMES = {
    "Augment": "framewin.augment",
    "Batches": "framewin.batches",
    "ConvertReport": "framewin.conversion.run",
    "ConvertSettings": "framewin.conversion.settings",
    "Damaged": "framewin.sources.damage",
    "EvaluationReport": "framewin.forecast.evaluate",
    "FetchReport": "framewin.stores.fetch",
    "FormatVersionError": "framewin.errors",
    "FrameFormatError": "framewin.errors",
    "Frames": "framewin.frames",
    "FrameWindowDataset": "framewin.dataset",
    "FramewinError": "framewin.errors",
    "MissingDependencyError": "framewin.errors",
    "PredictReport": "framewin.forecast.predict",
    "ReadCost": "framewin.planning",
    "ReadPlan": "framewin.planning",
    "Scaling": "framewin.scaling",
    "SourceError": "framewin.errors",
    "SplitPart": "framewin.splitting",
    "SplitParts": "framewin.splitting",
    "SplitReport": "framewin.leaks",
    "StoreError": "framewin.errors",
    "TrainingError": "framewin.errors",
    "VerifyReport": "framewin.stores.verify",
    "Window": "framewin.dataset",
    "convert": "framewin.conversion.run",
    "evaluate": "framewin.forecast.evaluate",
    "fetch": "framewin.stores.fetch",
    "keep_freed_memory": "framewin.process",
    "open_frames": "framewin.frames",
    "plan": "framewin.planning",
    "predict": "framewin.forecast.predict",
    "split_report": "framewin.leaks",
    "verify": "framewin.stores.verify",
}

__all__ = [
    "Augment",
    "Batches",
    "ConvertReport",
    "ConvertSettings",
    "Damaged",
    "EvaluationReport",
    "FetchReport",
    "FormatVersionError",
    "FrameFormatError",
    "FrameWindowDataset",
    "Frames",
    "FramewinError",
    "MissingDependencyError",
    "PredictReport",
    "ReadCost",
    "ReadPlan",
    "Scaling",
    "SourceError",
    "SplitPart",
    "SplitParts",
    "SplitReport",
    "StoreError",
    "TrainingError",
    "VerifyReport",
    "Window",
    "convert",
    "evaluate",
    "fetch",
    "keep_freed_memory",
    "open_frames",
    "plan",
    "predict",
    "split_report",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'framewin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
