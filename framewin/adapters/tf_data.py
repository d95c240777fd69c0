"""Batches of windows as a tf.data.Dataset in which no Python runs, if the frames are mapped.

Mapped frames become a tensor without a copy, through DLPack, and each batch is two gathers
from it, inputs and targets, inside the graph. What that takes is written at each step below,
because every one of them, left out, costs a copy of the whole store or the process. Frames that
must be decoded are read by one call of Python per batch.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.adapters.fit_passes import Cardinality, checked
from framewin.adapters.read_ahead import ReadAhead, start
from framewin.adapters.tf_augment import augmenter
from framewin.metrics import FULL_SCALE
from framewin.optional import require
from framewin.scaling import Scaling
from framewin.stores.mapped_frames import TENSOR_ALIGNMENT
from framewin.windows import order
from framewin.windows.blocks import BlockOrder, ring_start
from framewin.windows.lanes import LaneSchedule
from framewin.windows.schedule import BatchSchedule

if TYPE_CHECKING:
    import tensorflow as tf

    from framewin.batches import Batches
    from framewin.dataset import FrameWindowDataset
else:
    tf = require("tensorflow", extra="tensorflow")

MAX_STORED_ORDER = 2**16


def to_tf_dataset(
    batches: Batches,
    *,
    prefetch: int = 2,
    parallel_batches: int = 2,
    read_ahead: int = 0,
    repeat: bool = False,
) -> tf.data.Dataset:
    """Batches as a `tf.data.Dataset`, as fast as from a tensor in memory.

    Each pass over the result is an epoch: the first one is `batches.start_epoch`, the next one
    `start_epoch + 1`, and so on. A batch that Keras draws to build a model, as it does under a
    strategy, is no pass; give `fit` the result itself for that, not one derived from it by `map`,
    of which each such look is a pass. Which windows a batch holds is what
    `batches.schedule.windows(epoch, step)` says.

    Args:
        batches: What an epoch consists of. With a `start_step` the first pass is shorter, so the
            length is unknown; `fit` warns once that it ran out of data, and goes on with the next
            epoch, which is whole.
        prefetch: Batches made ready ahead of the training step.
        parallel_batches: Batches that are made at the same time.
        read_ahead: Batches whose frames a thread asks the system for, ahead of those being made:
            for a store that is not in the page cache. None, 0, where it is. Mapped frames only.
        repeat: Epoch after epoch without an end, for a `steps_per_epoch` of `fit` that is not
            the number of batches.

    Returns:
        A dataset of known cardinality (but for `start_step`) with elements (inputs, targets):
        inputs: (B, input_frames, H, W, C); targets: (B, predict_frames, H, W, C). With weights
        as the third, float32 (B, predict_frames, H, W), if the dataset has them.

    Raises:
        ValueError: A parameter out of its range.
        MissingDependencyError: TensorFlow is not installed.
    """
    dataset, schedule, scaling = batches.dataset, batches.schedule, batches.scaling
    start_epoch, start_step = batches.start_epoch, batches.start_step
    batches.refuse_epochs()
    order.as_integer("prefetch", prefetch, 0)
    order.as_integer("parallel_batches", parallel_batches, 1)
    _check_replicas(schedule, _local_replicas(tf.distribute.get_strategy()))
    read = _graph_reader(dataset) or _python_reader(dataset)
    choose = _chooser(schedule)
    change = None if batches.augment is None else augmenter(batches)
    num_batches = schedule.num_batches
    ahead = ReadAhead(batches, read_ahead)
    count_step = (
        _step_counter(ahead, start_epoch * num_batches + start_step) if read_ahead else None
    )

    @tf.autograph.experimental.do_not_convert
    def load(epoch: dict[str, tf.Tensor], step: tf.Tensor) -> tuple[tf.Tensor, ...]:
        windows, draws, *resets = choose(epoch, step)
        if count_step is not None:
            count_step(epoch["number"] * num_batches + step)
        inputs, targets = read(windows)
        if change is not None:
            joined = tf.concat([inputs, targets], axis=1)
            joined = change(joined, windows, draws, epoch)
            inputs, targets = tf.split(joined, (inputs.shape[1], targets.shape[1]), axis=1)
        weights = (_weights(targets, dataset.nodata),) if dataset.weighted else ()
        if weights and math.isnan(dataset.nodata or 0.0):
            inputs, targets = (
                tf.where(tf.math.is_nan(part), tf.zeros_like(part), part)
                for part in (inputs, targets)
            )
        if scaling is not None:
            inputs, targets = scaled(inputs, scaling), scaled(targets, scaling)
        return batches.element(inputs, targets, weights, resets)

    @tf.autograph.experimental.do_not_convert
    def batches_of_epoch(epoch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        steps = tf.data.Dataset.range(epoch.pop("first_step"), num_batches)
        return tf.data.Dataset.zip(tf.data.Dataset.from_tensors(epoch).repeat(), steps)

    with tf.device("CPU"):
        next_epoch = tf.Variable(start_epoch, dtype=tf.int64, trainable=False)
    elements = (
        _epochs(schedule, next_epoch, start_epoch, start_step, repeat=repeat)
        .flat_map(batches_of_epoch)
        .map(load, num_parallel_calls=parallel_batches, deterministic=True)
    )
    cardinality = num_batches if start_step == 0 else tf.data.UNKNOWN_CARDINALITY
    if repeat:
        cardinality = tf.data.INFINITE_CARDINALITY
    if cardinality != tf.data.UNKNOWN_CARDINALITY:
        elements = elements.apply(tf.data.experimental.assert_cardinality(cardinality))
    elements = elements.prefetch(prefetch).with_options(_options())
    elements.cardinality = Cardinality(
        cardinality,
        cardinality if repeat else num_batches,
        next_epoch,
        lambda replicas: _check_replicas(schedule, replicas),
    )
    return elements if dataset.mapped is None else checked(elements, dataset.mapped.check)


def _step_counter(ahead: ReadAhead, first: int) -> Callable[[tf.Tensor], None]:
    """Counts in the graph which batch is being made, for a thread that asks for coming ones.

    The thread ends when nothing holds the counter any more.
    """
    with tf.device("CPU"):
        begun = tf.Variable(first, dtype=tf.int64, trainable=False)
    known = weakref.ref(begun)

    def steps_done() -> int | None:
        variable = known()
        return None if variable is None else int(variable.numpy())

    def count(step: tf.Tensor) -> None:
        begun.assign(step)

    start(ahead, steps_done)
    return count


ReadWindows = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Window numbers, int64 (B,), to inputs and targets of the stored dtype."""


def _graph_reader(dataset: FrameWindowDataset) -> ReadWindows | None:
    """Two gathers from the mapped frames; None where those cannot be a tensor."""
    mapped = dataset.mapped
    if mapped is None or mapped.rows is None:
        return None
    frames = mapped_tensor(mapped.rows)
    with tf.device("CPU"):
        window_ends = tf.constant(dataset.index.window_ends)
        start_bases = tf.constant(dataset.index.start_bases + mapped.first_row)
        input_offsets = tf.constant(dataset.spec.input_offsets)
        predict_offsets = tf.constant(dataset.spec.predict_offsets)

    def read(windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        runs = tf.searchsorted(window_ends, windows, side="right")
        starts = tf.gather(start_bases, runs) + windows * dataset.spec.window_stride
        rows = starts[:, tf.newaxis]
        return tf.gather(frames, rows + input_offsets), tf.gather(frames, rows + predict_offsets)

    return read


def _python_reader(dataset: FrameWindowDataset) -> ReadWindows:
    """One call of `FrameWindowDataset.read` per batch."""
    spec, dtype = dataset.spec, dataset.frame_format.dtype

    def read(windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = tf.numpy_function(dataset.read, [windows], (dtype, dtype), stateful=False)
        for part, frames in zip(parts, (spec.input_frames, spec.predict_frames), strict=True):
            part.set_shape((windows.shape[0], frames, *dataset.frame_format.shape))
        return tuple(parts)

    return read


def _weights(targets: tf.Tensor, nodata: float | None) -> tf.Tensor:
    """0 for each pixel without data in any channel, else 1: float32, targets' shape but for C."""
    if nodata is not None and math.isnan(nodata):
        missing = tf.math.is_nan(targets)
    else:
        missing = tf.equal(targets, tf.constant(np.array(nodata, targets.dtype.as_numpy_dtype)))
    return 1.0 - tf.cast(tf.reduce_any(missing, axis=-1), tf.float32)


def mapped_tensor(frames: np.ndarray) -> tf.Tensor:
    """Mapped frames as a tensor that shares their memory: stored dtype, (N, H, W, C).

    The tensor keeps the mapping alive. Its memory is read-only, which TensorFlow is not told:
    it never writes to a tensor that others hold.
    """
    # TensorFlow aborts the process on a tensor that is not aligned to 64 bytes; a mapping from
    # the first byte of a file always is.
    if frames.ctypes.data % TENSOR_ALIGNMENT:
        raise ValueError(f"frames must be aligned to {TENSOR_ALIGNMENT} bytes")
    # numpy refuses to export a read-only array, so the same memory is viewed once more.
    memory = (ctypes.c_uint8 * frames.nbytes).from_address(frames.ctypes.data)
    memory.owner = frames  # type: ignore[attr-defined]
    view = np.ctypeslib.as_array(memory).view(frames.dtype).reshape(frames.shape)
    return tf.experimental.dlpack.from_dlpack(view.__dlpack__())


def unit(frames: tf.Tensor) -> tf.Tensor:
    """Frames of a stored dtype as float32, integers scaled to 0..1; any shape."""
    full_scale = FULL_SCALE[frames.dtype.name]
    values = tf.cast(frames, tf.float32)
    return values if full_scale == 1.0 else values / full_scale


def scaled(frames: tf.Tensor, scaling: Scaling) -> tf.Tensor:
    """`Scaling.__call__` in the graph, operation by operation."""
    values = tf.cast(frames, scaling.computed)
    if any(scaling.offset):
        values = values - tf.constant(scaling.offset, scaling.computed)
    if set(scaling.divisor) != {1.0}:
        values = values / tf.constant(scaling.divisor, scaling.computed)
    return tf.cast(values, scaling.dtype)


ChooseWindows = Callable[[dict[str, tf.Tensor], tf.Tensor], tuple[tf.Tensor, ...]]
"""An epoch and a step to windows and what their random numbers come from, int64 (B,) each; of
lanes, the mask of those that begin anew, bool (B,), too."""


def _local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Replicas of this process, which share its batches; each process has batches of its own."""
    resolver = strategy.cluster_resolver
    cluster = {} if resolver is None else resolver.cluster_spec().as_dict()
    processes = sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    return int(strategy.num_replicas_in_sync) // max(1, processes)


def _check_replicas(schedule: BatchSchedule | LaneSchedule, replicas: int) -> None:
    """Refuse batches that leave one of the replicas which share them without a window."""
    if schedule.batch_size < replicas:
        raise ValueError(
            f"batch_size must be at least the {replicas} replicas, got {schedule.batch_size}"
        )
    if isinstance(schedule, LaneSchedule) or schedule.drop_remainder:
        return
    last = len(schedule.windows(0, schedule.num_batches - 1))
    if last < replicas:
        raise ValueError(
            f"the last batch has {last} of {schedule.batch_size} windows, too few for {replicas} "
            "replicas; give drop_remainder=True or another batch_size"
        )


def _chooser(schedule: BatchSchedule | LaneSchedule) -> ChooseWindows:
    if isinstance(schedule, LaneSchedule):
        return _lane_chooser(schedule)
    return _window_chooser(schedule)


def _lane_chooser(lanes: LaneSchedule) -> ChooseWindows:
    """`LaneSchedule.windows` and `resets` in the graph."""
    with tf.device("CPU"):
        first_positions = tf.constant(lanes.first_positions)
        firsts, lengths = tf.constant(lanes.firsts), tf.constant(lanes.lengths)

    def choose(epoch: dict[str, tf.Tensor], step: tf.Tensor) -> tuple[tf.Tensor, ...]:
        positions = first_positions + step
        at = tf.searchsorted(epoch["ends"], positions, side="right")
        chains = tf.gather(epoch["order"], at)
        places = positions - tf.gather(epoch["ends"], at) + tf.gather(lengths, chains)
        windows = tf.gather(firsts, chains) + places * lanes.hop
        return windows, windows, tf.logical_or(places == 0, step == 0)

    return choose


def _window_chooser(schedule: BatchSchedule) -> ChooseWindows:
    """`BatchSchedule.windows` in the graph."""
    index, count = schedule.shard
    size, num_windows = schedule.batch_size, schedule.num_windows
    with tf.device("CPU"):
        draws = None if schedule.draws is None else tf.constant(schedule.draws)

    def choose(epoch: dict[str, tf.Tensor], step: tf.Tensor) -> tuple[tf.Tensor, ...]:
        first = (step * count + index) * size
        if schedule.drop_remainder:
            positions = first + tf.range(size, dtype=tf.int64)
        else:
            positions = tf.range(first, tf.minimum(first + size, num_windows))
        if not schedule.shuffle:
            return positions, positions
        if draws is not None:
            numbers = _encipher(positions, epoch["key"], order.KEY_MAX_INDEX, order.KEY_ROUNDS)
            return tf.searchsorted(draws, numbers, side="right", out_type=tf.int64), positions
        if isinstance(schedule.order, BlockOrder):
            windows = _block_windows(positions, epoch, schedule.order)
        elif _stores_order(schedule):
            windows = tf.gather(epoch["order"], positions)
        else:
            windows = _permute(positions, epoch["key"], num_windows)
        return windows, windows

    return choose


def _options() -> Any:
    options = tf.data.Options()
    # The default rewrites copy every captured tensor when an iterator is made: for a store
    # that is larger than memory, that is the end of the process.
    options.experimental_optimization.apply_default_optimizations = False
    # So does the sharding rewrite under any tf.distribute strategy.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # Autotuning enlarges the prefetch buffer beyond what was asked for, in whole batches.
    options.autotune.enabled = False
    # The epoch counter is the only state, and an iterator holds its own epoch's order or key.
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return options


def _epochs(
    schedule: BatchSchedule | LaneSchedule,
    next_epoch: tf.Variable,
    start_epoch: int,
    start_step: int,
    *,
    repeat: bool,
) -> tf.data.Dataset:
    """One element per pass over it: the epoch, its first step, its key, uint32 (3,), and its order.

    With `repeat`, an element for each epoch from the first one on, which iterators count by
    themselves, so that one restored from a checkpoint goes on with the right epochs.

    Of few windows, the whole order is made once per epoch: int64 (num_windows,), because the
    cipher walks thousands of steps for each number in a range far below its block. Of lanes, that
    of the chains, and where each ends.
    """

    @tf.autograph.experimental.do_not_convert
    def of_next_epoch(_: tf.Tensor) -> dict[str, tf.Tensor]:
        epoch: dict[str, tf.Tensor] = of_epoch(next_epoch.assign_add(1) - 1)
        return epoch

    @tf.autograph.experimental.do_not_convert
    def of_epoch(number: tf.Tensor) -> dict[str, tf.Tensor]:
        first_step = tf.where(number == start_epoch, tf.constant(start_step, tf.int64), 0)
        key = _epoch_key(schedule.seed, number)
        epoch = {"number": number, "first_step": first_step, "key": key}
        if isinstance(schedule, LaneSchedule):
            epoch["order"] = _whole_order(len(schedule.lengths), key, schedule.shuffle)
            epoch["ends"] = tf.cumsum(tf.gather(schedule.lengths, epoch["order"]))
        elif _stores_order(schedule):
            epoch["order"] = _whole_order(_num_permuted(schedule), key, shuffle=True)
        return epoch

    if repeat:
        return tf.data.Dataset.range(start_epoch, tf.int64.max).map(of_epoch)
    return tf.data.Dataset.from_tensors(0).map(of_next_epoch)


def _epoch_key(seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """`framewin.windows.order.epoch_key` in the graph: uint32 (3,) for an int64 epoch."""
    return _derived_keys(tf.constant(order.seed_key(seed), tf.uint32), epoch[tf.newaxis])[0]


def _derived_keys(key: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """`framewin.windows.order.derived_key` in the graph: uint32 (n, 3) for int64 numbers (n,)."""
    parts = order.KEY_PARTS * numbers[:, tf.newaxis] + tf.range(order.KEY_PARTS, dtype=tf.int64)
    mixed = _encipher(tf.reshape(parts, [-1]), key, order.KEY_MAX_INDEX, order.KEY_ROUNDS)
    return tf.cast(tf.reshape(tf.math.floormod(mixed, 2**32), [-1, order.KEY_PARTS]), tf.uint32)


def _stores_order(schedule: BatchSchedule) -> bool:
    few = 0 < _num_permuted(schedule) <= MAX_STORED_ORDER
    return few and bool(schedule.shuffle) and schedule.draws is None


def _num_permuted(schedule: BatchSchedule) -> int:
    """Windows, or the blocks that are whole."""
    found = schedule.order
    return found.full_blocks if isinstance(found, BlockOrder) else schedule.num_windows


def _block_windows(
    positions: tf.Tensor, epoch: dict[str, tf.Tensor], blocks: BlockOrder
) -> tf.Tensor:
    """`BlockOrder.windows` in the graph: int64, the shape of `positions` (B,)."""
    key = epoch["key"]
    groups = blocks.groups(positions)
    begins, ends = (_group_begins(blocks, numbers) for numbers in (groups, groups + 1))
    inner = _permute_each(positions - begins, _derived_keys(key, groups), ends - begins)
    places = begins + inner
    numbers = places // blocks.block_windows
    full = tf.minimum(numbers, max(0, blocks.full_blocks - 1))
    if "order" in epoch:
        moved = tf.gather(epoch["order"], full)
    else:
        moved = _permute(full, key, max(1, blocks.full_blocks))
    numbers = tf.where(numbers < blocks.full_blocks, moved, numbers)
    windows = numbers * blocks.block_windows + places % blocks.block_windows
    start = ring_start(tf.cast(key, tf.int64), blocks.num_windows)
    return (windows + start) % blocks.num_windows


def _group_begins(blocks: BlockOrder, groups: tf.Tensor) -> tf.Tensor:
    begins = groups * blocks.all_blocks // blocks.num_groups * blocks.block_windows
    return tf.minimum(begins, blocks.num_windows)


def _permute_each(indices: tf.Tensor, keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """`framewin.windows.order.permuted` with a key (n, 3) and a count (n,) for each index (n,)."""
    last = counts - 1
    is_power_of_two = tf.logical_and(last > 0, tf.bitwise.bitwise_and(last, last - 1) == 0)
    max_indices = last + tf.cast(is_power_of_two, tf.int64)
    found = _encipher(indices, keys, max_indices, order.ROUNDS)
    return tf.where(found < counts, found, _encipher(found, keys, max_indices, order.ROUNDS))


def _whole_order(count: int, key: tf.Tensor, shuffle: bool) -> tf.Tensor:
    every = tf.range(count, dtype=tf.int64)
    return _permute(every, key, count) if shuffle else every


def _permute(positions: tf.Tensor, key: tf.Tensor, num_windows: int) -> tf.Tensor:
    """`EpochOrder.windows` in the graph: int64, the shape of `positions` (B,)."""
    max_index = order.cipher_max_index(num_windows)
    found = _encipher(positions, key, max_index, order.ROUNDS)
    if max_index < num_windows:
        return found
    return tf.where(found < num_windows, found, _encipher(found, key, max_index, order.ROUNDS))


def _encipher(
    indices: tf.Tensor, key: tf.Tensor, max_index: int | tf.Tensor, rounds: int
) -> tf.Tensor:
    """`framewin.windows.order.permute` in the graph."""
    return tf.raw_ops.RandomIndexShuffle(
        index=indices, seed=key, max_index=tf.convert_to_tensor(max_index, tf.int64), rounds=rounds
    )
