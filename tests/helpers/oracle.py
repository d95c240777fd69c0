"""Windows by plain slicing: as slow and plain as possible, to check the fast way against."""

from __future__ import annotations

from collections.abc import Sequence


def windows_of_clip(
    numbers: Sequence[int],
    *,
    input_frames: int,
    predict_frames: int,
    frame_step: int,
    window_stride: int,
    lead_gap: int,
    step: int,
) -> list[tuple[list[int], list[int]]]:
    """All windows of one clip as (positions of inputs, positions of predictions) in the clip."""
    windows = []
    segments: list[list[int]] = []
    for position, number in enumerate(numbers):
        if position > 0 and number - numbers[position - 1] == step:
            segments[-1].append(position)
        else:
            segments.append([position])
    for segment in segments:
        start = 0
        while True:
            every = segment[start::frame_step]
            inputs = every[:input_frames]
            targets = every[input_frames + lead_gap :][:predict_frames]
            if len(inputs) < input_frames or len(targets) < predict_frames:
                break
            windows.append((inputs, targets))
            start += window_stride
    return windows
