"""The clips of an array, told by its axes or columns, and the numbers of their frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framewin.arrays.attributes import as_text
from framewin.arrays.foreign_array import refusing_damage
from framewin.arrays.frames import FrameArray
from framewin.arrays.times import Times, UnknownTimesError, read_times
from framewin.errors import StoreError
from framewin.schema import ClipTable, listed

Column = str | Sequence[Any] | npt.NDArray[Any]
"""One value per frame or clip, or the name of an array beside the frames that holds them."""


def clip_table(
    source: FrameArray,
    *,
    clip_ids: Column | None = None,
    clip_starts: Column | None = None,
    frame_numbers: Column | None = None,
) -> ClipTable:
    """The clips of an array.

    Args:
        source: The frames.
        clip_ids: Clip of each frame, equal for the frames of a clip.
        clip_starts: Instead of ids, the row of each clip's first frame.
        frame_numbers: Number of each frame; by default its time, else 0, 1, 2, ...

    Raises:
        StoreError: Columns that do not fit the frames or each other.
        ValueError: Both ids and starts.
    """
    given = frame_numbers is not None
    tells_clips = clip_ids is not None or clip_starts is not None
    if clip_ids is not None and clip_starts is not None:
        raise ValueError("clips are told by clip_ids or by clip_starts, not by both")
    if len(source.members) > 1 and (tells_clips or given):
        raise ValueError(
            f"{source.name!r} names several arrays, each a clip; clip_ids, clip_starts and "
            "frame_numbers are of one array"
        )
    if source.num_clips[0] > 1 and tells_clips:
        raise ValueError("an axis n tells the clips, so clip_ids and clip_starts cannot")
    with refusing_damage(source.path):
        if tells_clips:
            names, starts = _told_clips(source, clip_ids, clip_starts)
        else:
            names, starts = _clips_of_axes(source)
        numbers = [_numbers(source, index, frame_numbers) for index in range(len(source.members))]
        times = "the times of its time dimension"
        return _table(source, names, starts, numbers, "frame_numbers" if given else times)


def _clips_of_axes(source: FrameArray) -> tuple[list[str], np.ndarray]:
    """Names of clips and rows at which they begin: a clip for each array, and along its axis n."""
    names, lengths = [], []
    for member, count, length in zip(
        source.members, source.num_clips, source.clip_frames, strict=True
    ):
        above = f"{member.name}/" if len(source.members) > 1 else ""
        names += (
            [f"{above}clip{number}" for number in range(count)]
            if "n" in source.axes
            else [member.name]
        )
        lengths += [length] * count
    return names, np.cumsum([0, *lengths[:-1]], dtype=np.int64)


def _told_clips(
    source: FrameArray, clip_ids: Column | None, clip_starts: Column | None
) -> tuple[list[str], np.ndarray]:
    """The same by columns that tell the clips."""
    path, num_frames = source.path, source.num_frames
    if clip_ids is not None:
        ids = _values(source, clip_ids)
        _check_length(source, "clip_ids", ids)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])).astype(np.int64)
        names = [as_text(clip) for clip in ids[starts]]
        if len(set(names)) != len(names):
            twice = next(clip for clip in names if names.count(clip) > 1)
            raise StoreError(f"{path}: the frames of clip {twice} do not follow one another")
        return names, starts
    assert clip_starts is not None
    starts = _values(source, clip_starts).astype(np.int64)
    if len(starts) == 0 or starts[0] != 0 or (np.diff(starts, append=num_frames) < 1).any():
        raise StoreError(
            f"{path}: clip_starts must increase from 0 to below {num_frames}, "
            f"got {listed(starts.tolist())}"
        )
    return [f"clip{number}" for number in range(len(starts))], starts


def _table(
    source: FrameArray, names: list[str], starts: np.ndarray, found: list[Times | None], what: str
) -> ClipTable:
    """Join where clips begin and the frame numbers of each array, which errors call `what`."""
    known = [times for times in found if times is not None]
    if len({times and times.unit for times in found}) > 1:
        raise StoreError(
            f"{source.path}: the arrays of {source.name!r} are not all numbered by times of one "
            "unit; choose arrays that are alike"
        )
    if not known:
        # Rows are counted, so that opening does not grow with the frames, in each array anew.
        first = starts if len(found) == 1 else np.zeros_like(starts)
        return ClipTable(tuple(names), starts, starts, first, source.num_frames, step=1)
    numbers = []
    for times, length, count in zip(found, source.clip_frames, source.num_clips, strict=True):
        one = np.arange(length) if times is None else times.numbers
        numbers.append(np.tile(one, count) if len(one) < length * count else one)
    clips = np.split(np.concatenate(numbers), starts[1:])
    if any((np.diff(clip) < 1).any() for clip in clips):
        raise StoreError(f"{source.path}: {what} must increase within each clip")
    return ClipTable.from_frame_numbers(
        names,
        clips,
        time_unit=known[0].unit,
        tolerance=max(times.tolerance for times in known),
    )


def _numbers(source: FrameArray, index: int, given: Column | None) -> Times | None:
    """A number for each frame of an array, or for those of one clip where all are alike."""
    if given is None or isinstance(given, str):
        times = _times(source, index, given)
        if given is None or times is not None:
            return times
    values = _values(source, given)
    _check_length(source, "frame_numbers", values)
    try:
        times = read_times(values, {})
    except UnknownTimesError as exc:
        raise StoreError(f"{source.path}: frame_numbers: {exc}") from None
    if times is not None:
        return times
    if values.dtype.kind not in "iuf" or (values != np.rint(values)).any():
        raise StoreError(f"{source.path}: frame_numbers must be whole numbers, or datetime64")
    return Times(values.astype(np.int64), None)


def _times(source: FrameArray, index: int, given: str | None) -> Times | None:
    """A number for each frame of a clip, from the array of this name or of the time dimension.

    What is left of an array that seems to tell the frames' times is said in `source.notes`.
    """
    member, name = source.members[index], given
    if name is None and member.info.dimensions and "t" in source.axes:
        name = member.info.dimensions[source.axes.index("t")]
    found = member.coordinate(name, source.clip_frames[index]) if name else None
    if found is None:
        return None
    times, notes = None, []
    try:
        times = read_times(*found)
        if times is None and given is None:
            times, reason = _plain_numbers(found[0])
            notes += [f"the values of {name!r}, which {reason}"] * bool(reason)
        if times is not None and times.note is not None:
            notes.append(times.note)
    except UnknownTimesError as exc:
        notes.append(f"times in {name!r}, which are not understood: {exc}")
    source.notes += [note for note in notes if note not in source.notes]
    return times


def _plain_numbers(values: np.ndarray) -> tuple[Times | None, str]:
    """Values of a time dimension that do not say what they count, as numbers of frames.

    Returns:
        None where they are not whole and increasing, and what is lost by that, if anything.
    """
    if values.dtype.kind not in "iuf":
        return None, f"are {values.dtype.name}"
    differences = np.diff(values.astype(np.float64))
    # An array of a dimension that has no values is there, and zero.
    if not differences.any():
        return None, ""
    if values.dtype.kind != "f" and (differences > 0).all():
        return Times(values.astype(np.int64), None), ""
    if np.allclose(differences, differences[0], rtol=1e-3, atol=0):
        return None, ""
    return None, "are uneven and have no units such as 'seconds since 2000-01-01'"


def _values(source: FrameArray, values: Column) -> np.ndarray:
    if isinstance(values, str):
        return source.column(values, source.num_frames)
    return np.asarray(values)


def _check_length(source: FrameArray, what: str, values: np.ndarray) -> None:
    if values.shape != (source.num_frames,):
        raise StoreError(
            f"{source.path}: {what} has shape {values.shape}, expected ({source.num_frames},)"
        )
