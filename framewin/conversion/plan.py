"""What a conversion will do, decided before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from framewin.conversion.settings import ConvertSettings
from framewin.conversion.source import OpenSource, check_first_formats, open_source
from framewin.errors import SourceError, StoreError
from framewin.remote import refuse_url
from framewin.sources.clips import Clip
from framewin.stores import durable, format_module


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConversionPlan(OpenSource):
    """A checked intention: which rows of which store the frames of a source become."""

    dest: Path

    @property
    def format(self) -> Any:
        """The module that writes it."""
        return format_module(self.dest, self.settings.format)

    @property
    def needed_bytes(self) -> int:
        """Disk space that the store takes at most."""
        name_bytes = 0
        for clip in self.clips:
            files = clip.names_of_frames()
            name_bytes += len(clip.name) * len(files) + sum(map(len, files))
        needed: int = self.format.estimate_bytes(self.meta, self.settings.layout, name_bytes)
        # Attributes are written several times over.
        return needed + 4 * len(str(self.meta.conversion))

    def relative_files(self) -> list[tuple[str, Sequence[str]]]:
        """Per clip, its folder below the source ("" for the source itself) and its file names."""
        return [(clip.relative, clip.names_of_frames()) for clip in self.clips]


def plan_conversion(
    source: str | Path,
    dest: str | Path,
    settings: ConvertSettings | None = None,
) -> ConversionPlan:
    """List the frames of a source, and refuse what cannot be converted.

    Reads the header of the first frame of each clip and writes nothing.

    Args:
        source: A folder of frames or clips, at any depth, or a file that is a clip by itself.
        dest: The store to make; its suffix chooses the format where `settings` do not.
        settings: How files are read, what becomes of frames, and how the store shall be.

    Raises:
        SourceError: See `list_frames`; or a first frame that is not an image of its kind.
        FrameFormatError: Frames of different shape or dtype.
        StoreError: `dest` exists, lies inside `source` or holds it, has an unknown suffix, or
            there is too little room for it.
        ValueError: A no-data value that no pixel can have.
    """
    plan = draft_conversion(source, dest, settings)
    check_first_formats(plan)
    durable.check_room(plan.dest, plan.needed_bytes)
    return plan


def draft_conversion(
    source: str | Path,
    dest: str | Path,
    settings: ConvertSettings | None = None,
    *,
    lenient: bool = False,
) -> ConversionPlan:
    """Like `plan_conversion`, but clips may differ in their formats, and space may be short.

    A lenient draft leaves damaged files out even where they would stop the conversion.
    """
    settings = settings or ConvertSettings()
    # Before the source is listed, which may take minutes.
    _check_dest(Path(source), dest, settings.format, dry=lenient)
    opened = open_source(source, settings, lenient=lenient)
    return plan_store(opened, Path(dest))


def plan_store(opened: OpenSource, dest: Path) -> ConversionPlan:
    """The plan to write an opened source to a store.

    Raises:
        SourceError: A name that is not UTF-8.
    """
    for clip in opened.clips:
        _check_names(clip)
    kept = {each.name: getattr(opened, each.name) for each in fields(OpenSource)}
    return ConversionPlan(**kept, dest=dest)


def _check_dest(source: Path, dest: str | Path, format: str | None, *, dry: bool) -> None:
    """Refuse a place that a store cannot be written to."""
    refuse_url(dest, "framewin convert writes to this machine; convert to a path, then upload it")
    dest = Path(dest)
    format_module(dest, format)
    durable.check_new(dest, dry=dry)
    real_source, real_dest = source.resolve(), dest.resolve()
    if real_dest.is_relative_to(real_source):
        raise StoreError(f"{dest} lies inside the source {source}; choose a place outside it")
    if real_source.is_relative_to(real_dest):
        raise StoreError(f"the source {source} lies inside {dest}; choose another place")


def _check_names(clip: Clip) -> None:
    """Refuse names that no store can keep."""
    texts = (str(clip.folder), clip.name, *clip.file_names)
    if not _is_utf8("\0".join(texts)):
        bad = next(text for text in texts if not _is_utf8(text))
        raise SourceError(f"{str(clip.folder / bad)!a} is not valid UTF-8; rename it")


def _is_utf8(text: str) -> bool:
    try:
        return bool(text.encode()) or True
    except UnicodeEncodeError:
        return False
