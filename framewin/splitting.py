"""Parts of a dataset by name: how they are chosen, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from framewin.errors import StoreError, one_line
from framewin.frames import Frames
from framewin.remote import Location, RemotePath, refuse_url
from framewin.schema import ClipTable
from framewin.stores import durable
from framewin.windows.spec import Runs, WindowSpec
from framewin.windows.splits import (
    ClipChoice,
    SplitTable,
    split_by_choice,
    split_by_clip,
    split_by_time,
)

if TYPE_CHECKING:
    from framewin.dataset import FrameWindowDataset

TRAINING_PART = "train"
SPLIT_SUFFIX = ".split.json"

PartChoice = float | Path | ClipChoice
"""Of a part: a share, clips by name, pattern or expression, or a text file with a name a line."""

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class SplitPart:
    """A part of a split that is kept in a file."""

    name: str
    file: str | Path | None = None
    """By default the one beside the store, `clips.zarr.split.json`."""
    span: int | None = None
    """Frames that must at least lie between the parts of a split by time; by default as many as a
    window spans. Longer windows stay within their part too."""

    def __post_init__(self) -> None:
        if self.span is not None and self.span < 1:
            raise ValueError(f"span must be >= 1, got {self.span}")
        if self.file is not None:
            refuse_url(self.file, "name a file of this machine for the split")
            # The folder of the process, or of one that opens it again, may be another one later.
            object.__setattr__(self, "file", Path(self.file).absolute())

    def read(self, frames: Frames, spec: WindowSpec) -> tuple[Runs, Runs]:
        """The rows of this part, and those of the training part.

        Raises:
            StoreError: There is no such file, or it belongs to another store.
            ValueError: It has no such part, or one whose windows would reach into another.
        """
        file = split_path(frames.path) if self.file is None else Path(self.file)
        table = read_table(file, frames)
        if self.name not in table.parts:
            raise ValueError(f"{file} has no part {self.name!r}; it has {', '.join(table.parts)}")
        span = self.span or spec.span
        if table.by == "time" and span > table.span:
            raise ValueError(
                f"{file} leaves {table.span} frames out between the parts, a window spans "
                f"{span}; split again for these windows"
            )
        return table.parts[self.name], training_part(table.parts)


def read_table(file: Path, frames: Frames) -> SplitTable:
    """The rows of all parts that a split file names.

    Raises:
        StoreError: There is no such file, it cannot be read, or it belongs to another store.
    """
    if not file.exists():
        raise StoreError(f"{file} does not exist; framewin split {frames.path} makes it")
    try:
        text = file.read_text(encoding="utf-8")
        return SplitTable.from_json(text, frames.meta.clips, frames.identity)
    except OSError as exc:
        raise StoreError(f"{file} cannot be read: {one_line(exc)}") from exc
    except ValueError as exc:
        raise StoreError(f"{file} {exc}") from None


class SplitParts(dict[str, "FrameWindowDataset"]):
    """The parts of a split by name, which can be kept in a file."""

    def __init__(self, parts: Mapping[str, FrameWindowDataset], table: SplitTable) -> None:
        super().__init__(parts)
        self.table = table

    def save(self, path: str | Path | None = None) -> Path:
        """Write the split to a small JSON file, which `split=` reads.

        Args:
            path: By default beside the store, `clips.zarr.split.json`; of a remote store it must
                be given.

        Raises:
            StoreError: The file exists or cannot be written, or would not be on this machine.
        """
        first = next(iter(self.values()))
        if path is not None:
            refuse_url(path, "name a file of this machine for the split")
        path = split_path(first.path) if path is None else Path(path)
        durable.check_new(path)
        try:
            with durable.building(path) as site:
                text = self.table.to_json(first.clips, first.identity)
                site.store.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise StoreError(f"{path} cannot be written: {one_line(exc)}") from exc
        return path


def split_path(store: Location) -> Path:
    """Where the split of a store is kept by default: beside it.

    Raises:
        StoreError: The store is remote.
    """
    if isinstance(store, RemotePath):
        raise StoreError(
            f"{store} is remote, so no split is kept beside it; name a file of this machine, "
            "SplitPart(name, file=...) to read it, out= or save(path) to write it"
        )
    return store.with_name(store.name + SPLIT_SUFFIX)


def training_part(parts: Mapping[str, Part]) -> Part:
    """The part that is called "train", or the first one."""
    return parts[TRAINING_PART if TRAINING_PART in parts else next(iter(parts))]


def divided(
    clips: ClipTable,
    spec: WindowSpec,
    used: Runs,
    choices: Mapping[str, PartChoice],
    *,
    by: str,
    seed: int,
) -> dict[str, Runs]:
    """The rows of each part that `FrameWindowDataset.split` is asked for.

    Raises:
        ValueError: Bad fractions, an unknown clip or one in two parts, a part without a window.
    """
    if by not in ("clip", "time"):
        raise ValueError(f"by must be 'clip' or 'time', got {by!r}")
    shares = {n: c for n, c in choices.items() if isinstance(c, int | float)}
    if shares and len(shares) < len(choices):
        raise ValueError(f"give every part a share, or every part its clips; got {choices}")
    if shares or not choices:
        if by == "clip":
            return split_by_clip(clips, spec, shares, seed=seed, used=used)
        return split_by_time(clips, spec, shares, used=used)
    if by == "time":
        raise ValueError("by='time' needs shares, such as train=0.8; clips were named")
    named = {
        name: _lines(choice) if isinstance(choice, Path) else cast(ClipChoice, choice)
        for name, choice in choices.items()
    }
    return split_by_choice(clips, spec, named, used=used)


def absolute(choice: Any) -> Any:
    """A path from the root of the file system; anything else as it is."""
    return choice.absolute() if isinstance(choice, Path) else choice


def _lines(path: Path) -> list[str]:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is no file; expected a text file with a clip in each line")
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(
            f"{path} cannot be read as a text file with a clip in each line: {exc}"
        ) from None
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise ValueError(f"{path} names no clip; write one in each line")
    return names
