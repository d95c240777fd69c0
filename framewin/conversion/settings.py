"""What a user may say about a conversion: one frozen value, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

from framewin.sources import KINDS
from framewin.sources.info import MAX_PIXELS, ListRule, ReadOptions
from framewin.sources.names import NameRule, parse_step

_CHOICES = {
    "palette": ("color", "index"),
    "mode": ("keep", "gray", "rgb"),
    "fit": ("stretch", "pad", "crop"),
    "on_error": ("stop", "gap"),
}


class ConvertOptions(TypedDict, total=False):
    """The keyword arguments of `framewin.convert` that say what frames become."""

    frame_regex: str | None
    time_format: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    step: int | str | None
    step_tolerance: int | str | None
    palette: Literal["color", "index"]
    mode: Literal["keep", "gray", "rgb"]
    drop_alpha: bool
    background: tuple[int, int, int] | None
    crop: tuple[int, int, int, int] | None
    size: tuple[int, int] | None
    fit: Literal["stretch", "pad", "crop"]
    on_error: Literal["stop", "gap"]
    max_pixels: int
    stream: int | None
    array: str | None
    axes: str | None
    clip_ids: str | None
    frame_numbers: str | None
    kind: str | None
    allow_missing_chunks: bool


@dataclass(frozen=True, slots=True)
class ConvertSettings:
    """Everything that decides what a store will hold, besides the files themselves."""

    frame_regex: str | None = None
    """Where a path below the source has its groups `frame` or `time`, and perhaps `clip`."""
    time_format: str | None = None
    """strptime format of the group `time`; ISO 8601 by default."""
    include: tuple[str, ...] = ()
    """Globs of which a path below the source must match one."""
    exclude: tuple[str, ...] = ()
    """Globs of which a path below the source must match none."""
    step: int | str | None = None
    """Difference of neighbouring frame numbers, or a time such as "5min"."""
    step_tolerance: int | str | None = None
    """By how much differences may miss the step, below half of it; like `step`. The step is by
    default the median of the differences then."""
    palette: str = "color"
    """`"color"`, or `"index"` to keep palette indices as values."""
    mode: str = "keep"
    """`"keep"`, or `"gray"` or `"rgb"` for frames of these colours."""
    drop_alpha: bool = False
    """Leave out an alpha channel that is opaque everywhere."""
    background: tuple[int, int, int] | None = None
    """Red, green and blue, 0..255, over which transparent frames are laid."""
    crop: tuple[int, int, int, int] | None = None
    """Rows and columns to keep: top, bottom, left, right, half-open."""
    size: tuple[int, int] | None = None
    """Height and width to bring frames to."""
    fit: str = "stretch"
    """How other proportions are brought to `size`: `"stretch"`, `"pad"` or `"crop"`."""
    on_error: str = "stop"
    """`"stop"` at a damaged frame, or leave a `"gap"`."""
    max_pixels: int = MAX_PIXELS
    """Pixels of a frame above which a file is refused before it is decoded."""
    stream: int | None = None
    """Which stream of video files, or array of `.npz` files, that hold several."""
    array: str | None = None
    """Name of the array with the frames, in HDF5, netCDF4 and Zarr files, or a pattern of names
    of which each is a clip."""
    axes: str | None = None
    """A letter for each of its axes: t time, y, x, c channel, n clip; by default what its
    dimension names say, else "tyx" or "tyxc"."""
    clip_ids: str | None = None
    """Name of an array with the clip of each frame."""
    frame_numbers: str | None = None
    """Name of an array with the number of each frame, by which gaps are found."""
    kind: str | None = None
    """One of `framewin.sources.KINDS`: what all files are, whatever their suffixes."""
    allow_missing_chunks: bool = False
    """Take chunks of an array that are not there for frames of the fill value."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        for name in ("include", "exclude"):
            globs = getattr(self, name)
            object.__setattr__(self, name, (globs,) if isinstance(globs, str) else tuple(globs))
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        self._check_numbers()
        NameRule(self.frame_regex, self.time_format)
        for name in ("step", "step_tolerance"):
            if getattr(self, name) is not None:
                parse_step(getattr(self, name), name)

    def _check_numbers(self) -> None:
        if self.drop_alpha and self.background is not None:
            raise ValueError("drop_alpha and background exclude each other; give one of them")
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels must be >= 1, got {self.max_pixels}")
        if self.stream is not None and self.stream < 0:
            raise ValueError(f"stream must be >= 0, got {self.stream}")
        for name, count in (("size", 2), ("background", 3), ("crop", 4)):
            value = getattr(self, name)
            if value is not None and not _is_integers(value, count):
                raise ValueError(f"{name} must be {count} integers, got {value!r}")
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
        names = NameRule(self.frame_regex, self.time_format)
        return ListRule(
            names, self.include, self.exclude, self.step, self.step_tolerance, self.kind
        )

    @property
    def read_options(self) -> ReadOptions:
        """How files are read."""
        return ReadOptions(
            self.palette,
            self.stream,
            self.max_pixels,
            self.array,
            self.axes,
            self.clip_ids,
            self.frame_numbers,
            self.kind,
            self.allow_missing_chunks,
        )

    def as_json(self) -> Mapping[str, Any]:
        """All settings as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }


def _is_integers(value: Any, count: int) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) == count
        and all(isinstance(part, int) for part in value)
    )
