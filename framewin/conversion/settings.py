"""Every setting of a conversion: its default, description and checks.

The keyword arguments of `framewin.convert`, the options of the command, the record in a store,
and what a comparison with the source reads back all come from these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar

from framewin.settings import check, document_keywords, setting, taken

if TYPE_CHECKING:
    from framewin.sources.info import ListRule, ReadOptions
    from framewin.stores.layout import Layout

_source = partial(setting, group="Source")
_order = partial(setting, group="Order of frames")
_pixels = partial(setting, group="Pixels")
_store = partial(setting, group="Store")
RUN = "Run"
_run = partial(setting, group=RUN)


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class ConvertSettings:
    """Everything that decides what a store will hold, besides the files themselves."""

    frame_regex: str | None = _order(
        None,
        "Regular expression for paths below the source, with the group (?P<frame>...) or "
        "(?P<time>...), and perhaps (?P<clip>...).",
    )
    time_format: str | None = _order(None, "strptime format of (?P<time>...).", shown="ISO 8601")
    include: tuple[str, ...] = _source(
        (), "Glob: take only paths below the source that match; repeatable."
    )
    exclude: tuple[str, ...] = _source(
        (), "Glob: leave out paths below the source that match; repeatable."
    )
    step: int | str | None = _order(
        None,
        "Difference between neighbouring frames: a number, or a time such as 5min.",
        shown="the most frequent one",
    )
    step_tolerance: int | str | None = _order(
        None,
        "By how much differences may miss the step, below half of it: a number, or a time such as "
        "2ms. The default of the step is then their median.",
        shown="0",
    )
    palette: Literal["color", "index"] = _pixels(
        "color", "Store the colours of palette images, or keep their indices as values."
    )
    mode: Literal["keep", "gray", "rgb"] = _pixels("keep", "Colours of all frames.")
    drop_alpha: bool = _pixels(False, "Leave out an alpha channel that is opaque everywhere.")
    background: tuple[int, int, int] | None = _pixels(
        None, "Colour to lay transparent frames over, 0..255 each.", form="R,G,B"
    )
    crop: tuple[int, int, int, int] | None = _pixels(
        None, "Rows and columns to keep, half-open.", form="TOP:BOTTOM,LEFT:RIGHT"
    )
    size: tuple[int, int] | None = _pixels(
        None, "Height and width to resize frames to.", form="HxW"
    )
    fit: Literal["stretch", "pad", "crop"] = _pixels(
        "stretch", "How frames of other proportions are brought to the size."
    )
    on_error: Literal["stop", "gap"] = _source(
        "stop", "At a damaged frame: stop, or leave it out as a gap."
    )
    max_pixels: int = _source(
        2**28, "Refuse files whose frames claim more pixels, before decoding them.", least=1
    )
    stream: int | None = _source(
        None,
        "Which stream of video files, or array of .npz files, that hold several, from 0.",
        least=0,
    )
    array: str | None = _source(
        None,
        "Name of the array with the frames, in HDF5, netCDF4 and Zarr files, or a pattern of "
        "names of which each is a clip.",
    )
    axes: str | None = _source(
        None,
        "Axes of the array, a letter each: t time, y, x, c channel, n clip.",
        shown="by its dimension names, else tyx or tyxc",
    )
    clip_ids: str | None = _source(None, "Name of an array with the clip of each frame.")
    frame_numbers: str | None = _source(
        None, "Name of an array with the number of each frame, by which gaps are found."
    )
    kind: str | None = _source(
        None, "What all files are, whatever their suffixes: png, tiff, video, ..."
    )
    allow_missing_chunks: bool = _source(
        False, "Read chunks that an array lacks as frames of its fill value."
    )
    format: str | None = _store(None, "zarr or hdf5.", shown="by the suffix of the store")
    compression: str = _store(
        "none", "none (mapped, the fastest to read), zstd, lz4 or gzip (smaller)."
    )
    level: int | None = _store(
        None, "Compression level of zstd, 1 to 22, or gzip, 1 to 9.", shown="3, 5"
    )
    chunk_frames: int | None = _store(
        None, "Frames per chunk.", shown="about 1 MiB raw, 64 KiB compressed"
    )
    nodata: float | None = _store(
        None, "Pixel value that stands for no data, or nan; kept in the store."
    )
    statistics: bool = _store(
        False,
        "Record mean, motion and no-data of each frame, so that where= and weights= of a dataset "
        "need not read the frames.",
    )

    def __post_init__(self) -> None:
        from framewin.sources import KINDS
        from framewin.sources.names import NameRule, parse_step

        check(self)
        for name in ("include", "exclude"):
            globs = getattr(self, name)
            object.__setattr__(self, name, (globs,) if isinstance(globs, str) else tuple(globs))
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        self._check_pixels()
        NameRule(self.frame_regex, self.time_format)
        for name in ("step", "step_tolerance"):
            if getattr(self, name) is not None:
                parse_step(getattr(self, name), name)
        _ = self.layout

    def _check_pixels(self) -> None:
        if self.drop_alpha and self.background is not None:
            raise ValueError("drop_alpha and background exclude each other; give one of them")
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"size must be a height and a width above 0, got {self.size}")
        if self.size is None and self.fit != "stretch":
            raise ValueError(f"without size= there is nothing to fit, got fit={self.fit!r}")
        if self.background is not None and not all(0 <= v <= 255 for v in self.background):
            raise ValueError(f"background must be three values in 0..255, got {self.background}")
        if self.crop is not None:
            top, bottom, left, right = self.crop
            if not (0 <= top < bottom and 0 <= left < right):
                raise ValueError(
                    f"crop must be top < bottom and left < right, from 0, got {self.crop}"
                )

    @property
    def list_rule(self) -> ListRule:
        """How files are found and named."""
        from framewin.sources.info import ListRule
        from framewin.sources.names import NameRule

        names = NameRule(self.frame_regex, self.time_format)
        return taken(ListRule, {**vars(self), "names": names})

    @property
    def read_options(self) -> ReadOptions:
        """How files are read."""
        from framewin.sources.info import ReadOptions

        return taken(ReadOptions, vars(self))

    @property
    def layout(self) -> Layout:
        """How the frames shall lie in the store."""
        from framewin.stores.layout import Layout

        return Layout(self.compression, self.level, self.chunk_frames)

    def as_json(self) -> dict[str, Any]:
        """The settings that decide what frames become, as JSON values; a store records them."""
        values = {name: getattr(self, name) for name in _names()}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    def store_json(self) -> dict[str, Any]:
        """Those that say how the store shall be, as JSON values."""
        return {name: getattr(self, name) for name in _names(of_store=True)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], **changes: Any) -> ConvertSettings:
        """What `as_json` gave, with changes; other names in the record are passed over."""
        names = [name for name in _names() if name in record]
        given = {n: tuple(v) if isinstance(v := record[n], list) else v for n in names}
        if given.get("size") is None:
            # Stores made before may hold one without a size, which changes nothing.
            given.pop("fit", None)
        return cls(**{**given, **changes})


def _names(*, of_store: bool = False) -> list[str]:
    """Names of the settings that say how the store shall be, or of the others."""
    every = fields(ConvertSettings)
    return [each.name for each in every if (each.metadata["group"] == "Store") == of_store]


@dataclass(frozen=True)
class RunSettings:
    """How a conversion is carried out, which changes nothing in the store."""

    workers: int | None = _run(
        None, "Threads that decode and write.", least=1, shown="one per core"
    )
    executor: Executor | None = setting(
        None,
        "Decodes and writes in place of threads: any `concurrent.futures.Executor`, such as a "
        "`ProcessPoolExecutor` (that spawns), Dask's `Client.get_executor()` or mpi4py's "
        "`MPIPoolExecutor`. Its workers need framewin and the same files at the same paths; the "
        "store is the same to the last bit. It is not shut down.",
    )
    in_flight: int | None = setting(
        None,
        "Tasks that the executor is given at once.",
        shown="twice its workers, where it tells their number",
    )
    progress: Callable[[int, int], None] | None = setting(
        None, "Called with (frames done, frames in all) after each block."
    )
    restart: bool = _run(False, "Begin anew where an interrupted conversion could be resumed.")

    def __post_init__(self) -> None:
        check(self)
        if self.executor is not None and self.workers is not None:
            raise ValueError(
                f"executor and workers exclude each other, got workers={self.workers}; an executor "
                "has its own workers"
            )
        if self.executor is None and self.in_flight is not None:
            raise ValueError(f"in_flight is of an executor, got {self.in_flight} without one")


@dataclass(frozen=True)
class ConvertOptions(RunSettings, ConvertSettings):
    """All keyword arguments of `framewin.convert`."""


class Converts(Protocol[P, R]):
    """A function that takes the fields of `ConvertOptions` by keyword."""

    def __call__(
        self, source: str | Path, dest: str | Path, *args: P.args, **options: P.kwargs
    ) -> R:
        """See `framewin.convert`."""


def with_options(
    options: Callable[P, ConvertOptions],
) -> Callable[[Callable[..., R]], Converts[P, R]]:
    """Show type checkers and readers the fields of `ConvertOptions` in place of `**options`."""

    def described(function: Callable[..., R]) -> Converts[P, R]:
        document_keywords(function, ConvertOptions)
        return function

    return described
