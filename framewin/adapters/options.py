"""What the adapters have in common."""

from __future__ import annotations

from typing import Any, TypedDict

from framewin.scaling import Normalize
from framewin.windows.blocks import ShuffleBlocks
from framewin.windows.schedule import Shuffle


class BatchOptions(TypedDict, total=False):
    """Options of `WindowBatches` that are passed on to it."""

    batch_size: int
    shuffle: Shuffle
    shuffle_blocks: ShuffleBlocks | None
    seed: int
    drop_remainder: bool
    normalize: Normalize | None
    dtype: str | None
    augment: Any
    input_name: str | None
    start_epoch: int
    start_step: int
    shard: tuple[int, int]
    lanes: bool
