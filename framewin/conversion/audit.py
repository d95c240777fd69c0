"""What a dry run finds: every file's bytes are read, no pixel is decoded, nothing is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from framewin.conversion.plan import ConversionPlan
from framewin.conversion.read import LARGE_READ_BYTES, read_file
from framewin.conversion.source import check_frame
from framewin.errors import FrameFormatError, SourceError
from framewin.schema import MICROSECONDS, ClipTable, Gap, Progress, median, shown_number
from framewin.sources import frame_decoder, png
from framewin.sources.clips import Clip
from framewin.sources.damage import no_damage, unreadable
from framewin.sources.info import FileInfo
from framewin.sources.listing import Skipped

_DIGEST_BYTES = 16


@dataclass(slots=True)
class GapAudit:
    """Frames that are missing between two others of a clip, by number or time."""

    before: str
    after: str
    frames: int
    """How many are missing; 0 where the difference is not a number of whole steps."""
    missing: str
    """Which are missing, from first to last."""


@dataclass(slots=True)
class ClipAudit:
    """What is in one clip."""

    name: str
    first: str
    """Name of the first file."""
    last: str
    frames: int
    first_number: str
    """Frame number, or time, of the first frame."""
    last_number: str
    gaps: list[GapAudit] = field(default_factory=list)
    duplicates: list[list[str]] = field(default_factory=list)
    """Files of equal content, which are kept all the same."""
    formats: dict[str, int] = field(default_factory=dict)
    """Kind of file -> files."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Height and width in the files -> files."""
    modes: dict[str, int] = field(default_factory=dict)
    """Kind of pixels in the files -> files."""
    notes: dict[str, int] = field(default_factory=dict)
    """What is present in files but not applied -> files."""
    bytes_in: int = 0

    def count(self, info: FileInfo) -> None:
        """Count a file by what its header says."""
        size = f"{info.frame_format.height}x{info.frame_format.width}"
        counted = [(self.formats, info.kind), (self.sizes, size), (self.modes, info.mode)]
        for counts, what in [*counted, *((self.notes, note) for note in info.notes)]:
            counts[what] = counts.get(what, 0) + 1


@dataclass(slots=True)
class Audit:
    """What is in a source, and what a conversion of it would do."""

    source: str
    dest: str
    frames: int
    frame_format: str
    """Of the first frame, as it would be stored."""
    step: str
    """Between neighbouring frames."""
    time_unit: str | None
    bytes_in: int
    bytes_out: int
    """At most."""
    clips: list[ClipAudit]
    skipped: dict[str, Skipped]
    """Files that are not frames, by reason."""
    problems: list[str]
    """What would stop the conversion, a line each."""
    damaged: list[str]
    """Frames that would be left out as far as headers tell."""
    settings: dict[str, Any]
    hint: str | None
    """What to try where the frames give hardly any window."""

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return asdict(self)


def audit(plan: ConversionPlan, progress: Progress | None = None) -> Audit:
    """Read every file of a plan and say what it holds."""
    table, bytes_out, done = plan.meta.clips, plan.needed_bytes, 0
    clips = {clip.name: _clip_audit(clip, table.time_unit) for clip in plan.clips}
    for gap in table.gaps():
        found = audit_gap(gap, table.step, table.time_unit, plan.tolerance)
        clips[gap.clip].gaps.append(found)
    problems: list[str] = []
    damaged = [entry.reason for entry in plan.damaged]
    for clip in plan.clips:
        result, seen = clips[clip.name], dict[bytes, list[str]]()
        for path in clip.files():
            try:
                digest, info = _examined(plan, clip, path, result)
                seen.setdefault(digest, []).append(path[len(str(clip.folder)) + 1 :])
                result.count(info)
                if info.is_clip and info.frames > 1 and not clip.in_order:
                    raise FrameFormatError(
                        f"{path} is a clip by itself in a place for single frames; leave it out by "
                        "exclude="
                    )
                check_frame(plan, info, path)
            except SourceError as exc:
                stop = no_damage(path, exc)
                (damaged if stop is None else problems).append(str(stop or exc))
            done += len(clip.numbers) if clip.in_order else 1
            if progress is not None:
                progress(done, table.num_frames)
        result.duplicates = [files for files in seen.values() if len(files) > 1]
    stops = plan.settings.on_error == "stop"
    return Audit(
        source=str(plan.source),
        dest=str(plan.dest),
        frames=table.num_frames,
        frame_format=str(plan.meta.frame_format),
        step=shown_step(table.step, table.time_unit),
        time_unit=table.time_unit,
        bytes_in=sum(clip.bytes_in for clip in clips.values()),
        bytes_out=bytes_out,
        clips=[*clips.values()],
        skipped=plan.skipped,
        problems=[*damaged, *problems] if stops else problems,
        damaged=[] if stops else damaged,
        settings=dict(plan.settings.as_json()),
        hint=window_hint(table),
    )


def shown_step(step: int, time_unit: str | None) -> str:
    """A step with its unit.

    >>> shown_step(1, None), shown_step(300, "s"), shown_step(40, "ms")
    ('1', '5 min', '40 ms')
    """
    if time_unit is None:
        return str(step)
    microseconds = step * MICROSECONDS[time_unit]
    for unit in ("d", "h", "min", time_unit):
        if microseconds % MICROSECONDS[unit] == 0:
            break
    return f"{microseconds // MICROSECONDS[unit]} {unit}"


def window_hint(clips: ClipTable) -> str | None:
    """What to try where most frames have no neighbour that a window could hold, too."""
    lengths = clips.segment_lengths
    whole = len(lengths) == len(clips.names) or 2 * len(lengths) < clips.num_frames
    if whole and lengths.max() > 1:
        return None
    if len(clips.names) == clips.num_frames:
        return (
            "none of 1 + 1 frames, for every clip has a single frame; put the frames of a clip "
            "into one folder, or name it by the group (?P<clip>...) of frame_regex="
        )
    rows = np.setdiff1d(np.arange(1, clips.num_frames), clips.clip_starts)
    differences = clips.frame_numbers(rows) - clips.frame_numbers(rows - 1)
    step = median(differences)
    near = differences[2 * np.abs(differences - step) < step]
    miss = int(np.abs(near - step).max())
    found = f"hardly any, for {clips.num_frames:,} frames lie in {len(lengths):,} runs"
    if not miss or 2 * len(near) < len(differences):
        return f"{found}; their distances vary, and step= says which is the right one"
    # Two digits are as good as more.
    digit = 10 ** max(0, len(str(miss)) - 2)
    tolerance = min(-(-miss // digit) * digit, (step - 1) // 2)
    unit = clips.time_unit or ""
    given = f"'{tolerance}{unit}'" if unit else str(tolerance)
    return (
        f"{found}: they are unevenly spaced, {near.min()}{unit} to {near.max()}{unit} apart; allow "
        f"it by step_tolerance={given}"
    )


def audit_gap(gap: Gap, step: int, time_unit: str | None, tolerance: int = 0) -> GapAudit:
    """What a gap leaves out, and how many frames that is.

    >>> audit_gap(Gap("a", 4, 7), 1, None)
    GapAudit(before='4', after='7', frames=2, missing='5-6')
    >>> audit_gap(Gap("a", 0, 300), 150, "s").missing, audit_gap(Gap("a", 4, 6), 5, None).missing
    ('1970-01-01T00:02:30', 'irregular: 4 -> 6')
    """
    before, after = (shown_number(n, time_unit) for n in (gap.before, gap.after))
    difference = gap.after - gap.before
    steps = (difference + step // 2) // step
    if abs(difference - steps * step) > tolerance:
        return GapAudit(before, after, 0, f"irregular: {before} -> {after}")
    first, last = gap.before + step, gap.before + (steps - 1) * step
    ends = dict.fromkeys(shown_number(n, time_unit) for n in (first, last))
    missing = ("-" if time_unit is None else " to ").join(ends)
    return GapAudit(before, after, steps - 1, missing)


def _clip_audit(clip: Clip, time_unit: str | None) -> ClipAudit:
    first, last = (shown_number(int(clip.numbers[end]), time_unit) for end in (0, -1))
    files = clip.file_names
    return ClipAudit(clip.name, files[0], files[-1], len(clip.numbers), first, last)


def _examined(
    plan: ConversionPlan, clip: Clip, path: str, result: ClipAudit
) -> tuple[bytes, FileInfo]:
    """Digest and header of a file; the only file of a clip is read, and has no digest."""
    try:
        if clip.in_order:
            result.bytes_in += _readable_bytes(path)
            return b"", clip.info
        data, _ = read_file(path)
        result.bytes_in += len(data)
        decoder = frame_decoder(path, plan.settings.kind)
        info = decoder.inspect(data, path, plan.settings.read_options)
        if info.kind == png.KIND:
            # Other kinds have no checksums, or cannot be checked without decoding.
            png.check(data, path)
        return blake2b(data, digest_size=_DIGEST_BYTES).digest(), info
    except OSError as exc:
        raise unreadable(path, exc) from exc


def _readable_bytes(path: str) -> int:
    """Bytes of a file, or of all files of a folder, which are read to see that they can be."""
    files = [part for part in Path(path).rglob("*") if part.is_file()] or [Path(path)]
    found = 0
    for part in files:
        with part.open("rb") as file:
            while piece := file.read(LARGE_READ_BYTES):
                found += len(piece)
    return found
