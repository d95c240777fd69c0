"""Times of frames as numbers: what the conventions of netCDF (CF) and datetime64 arrays say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from framewin.errors import StoreError
from framewin.schema import MICROSECONDS, TIME_UNIT_NAMES, Int64Array, coarsest_unit

_SPELLINGS = {
    1e-3: "nanosecond nanoseconds nanosec nanosecs nsec nsecs ns",
    MICROSECONDS["us"]: "microsecond microseconds microsec microsecs usec usecs us",
    MICROSECONDS["ms"]: "millisecond milliseconds millisec millisecs msec msecs ms",
    MICROSECONDS["s"]: "second seconds sec secs s",
    MICROSECONDS["min"]: "minute minutes min mins",
    MICROSECONDS["h"]: "hour hours hr hrs h",
    MICROSECONDS["d"]: "day days d",
    7 * MICROSECONDS["d"]: "week weeks",
    365 * MICROSECONDS["d"]: "common_year common_years",
}
_SIZES = {name: size for size, names in _SPELLINGS.items() for name in names.split()}
"""Unit as files spell it -> microseconds."""
_UNEVEN = ("month", "months", "year", "years")
"""Units that do not always last equally long."""
_UNITS = re.compile(r"([a-z_]+) +(?:since|after|from|ref) +(.+)", re.IGNORECASE)
_REFERENCE = re.compile(
    r"(?P<year>[0-9]{1,4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:[T ] *(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,6})0*)?)?)?"
    r" *(?:Z|UTC|GMT|(?P<zone>[+-][0-9]{1,2})(?::?(?P<zone_minutes>[0-9]{2}))?)?",
    re.IGNORECASE,
)
_REAL_CALENDARS = ("standard", "gregorian", "proleptic_gregorian", "julian")
_MADE_UP_CALENDARS = ("noleap", "365_day", "all_leap", "366_day", "360_day")
_1970_DAY = 2_440_588
"""Julian day number of 1970-01-01."""
_COARSEST_FIRST = ("d", "h", "min", "s", "ms", "us")
_ACCUMULATED = 50
"""Microseconds by which sums of rounded steps may miss whole milliseconds."""
_MOST_MICROSECONDS = 2.0**62


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """A number for each frame, from its time."""

    numbers: Int64Array
    unit: str | None
    """Of `TIME_UNITS`, where the numbers count since 1970, UTC; None where they are not dates."""
    tolerance: int = 0
    """How far differences of neighbouring numbers may be off because times were rounded."""
    note: str | None = None
    """What is not kept of the times."""


class UnknownTimesError(StoreError):
    """Values that seem to be times, but are not understood; the text says why."""


def read_times(values: np.ndarray, attributes: Mapping[str, Any]) -> Times | None:
    """The times of frames.

    Args:
        values: One per frame: datetime64, or numbers with the attribute `units` as in "minutes
            since 2010-08-26", and perhaps `calendar`.
        attributes: Of the array.

    Returns:
        None where the values do not claim to be times.

    Raises:
        UnknownTimesError: They do, but it is not certain which times they are.
    """
    if values.dtype.kind == "M":
        return _of_datetimes(values)
    units, calendar = (_text(attributes, name) for name in ("units", "calendar"))
    match = _UNITS.fullmatch(units)
    if match is None or values.dtype.kind not in "iuf":
        return None
    calendar = calendar.lower() or "standard"
    values = _checked(values, attributes)
    unit = match[1].lower()
    if unit in _UNEVEN:
        return _counted(values, units)
    if unit not in _SIZES or calendar not in (*_REAL_CALENDARS, *_MADE_UP_CALENDARS):
        raise UnknownTimesError(f"{units!r} in the calendar {calendar!r} is not understood")
    begin = _reference(match[2], units, calendar)
    since, tolerance = _microseconds(values, _SIZES[unit])
    if calendar in _REAL_CALENDARS:
        return _dated(since + begin, tolerance)
    return _undated(since, tolerance, calendar, match[2])


def _of_datetimes(values: np.ndarray) -> Times:
    if np.isnat(values).any():
        raise UnknownTimesError(f"frame {np.flatnonzero(np.isnat(values))[0]} has no time")
    microseconds = values.astype("M8[us]")
    exact = bool((microseconds.astype(values.dtype) == values).all())
    return _dated(microseconds.astype(np.int64), 0 if exact else 1)


def _text(attributes: Mapping[str, Any], name: str) -> str:
    value = attributes.get(name, "")
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).strip()


def _checked(values: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """Values without a missing one, unpacked."""
    missing = ~np.isfinite(values)
    for name in ("_FillValue", "missing_value"):
        if name in attributes and not isinstance(attributes[name], str):
            missing |= values == np.ravel(attributes[name])[0]
    packing = [attributes.get(name) for name in ("scale_factor", "add_offset")]
    if packing != [None, None]:
        scale, offset = (
            default if given is None else float(np.ravel(given)[0])
            for given, default in zip(packing, (1.0, 0.0), strict=True)
        )
        values = values * scale + offset
        missing |= ~np.isfinite(values)
    if missing.any():
        raise UnknownTimesError(f"frame {np.flatnonzero(missing)[0]} has no time")
    return values


def _reference(text: str, units: str, calendar: str) -> int:
    """Microseconds from 1970 to the reference time; of a calendar without real days, unused."""
    import cftime

    match = _REFERENCE.fullmatch(text.strip())
    if match is None:
        raise UnknownTimesError(f"the reference time of {units!r} is not understood")
    year, month, day, hour, minute, second, zone, zone_minutes = (
        int(match[name] or 0)
        for name in ("year", "month", "day", "hour", "minute", "second", "zone", "zone_minutes")
    )
    try:
        date = cftime.datetime(year, month, day, hour, minute, second, calendar=calendar)
    except ValueError as exc:
        raise UnknownTimesError(f"the reference time of {units!r} cannot be: {exc}") from None
    fraction = int((match["fraction"] or "0").ljust(6, "0"))
    seconds = hour * 3600 + minute * 60 + second - zone * 3600
    seconds -= -60 * zone_minutes if (match["zone"] or "").startswith("-") else 60 * zone_minutes
    days = int(date.toordinal()) - _1970_DAY
    return days * MICROSECONDS["d"] + seconds * MICROSECONDS["s"] + fraction


def _microseconds(values: np.ndarray, size: float) -> tuple[Int64Array, int]:
    """Values as microseconds, and by how many neighbouring differences may be off.

    Args:
        values: Finite numbers.
        size: Microseconds that they count.
    """
    # Of its own dtype: float32 days since 1970 are minutes apart.
    rounding = float(np.spacing(np.abs(values).max())) * size if values.dtype.kind == "f" else 0
    if float(np.abs(values.astype(np.float64)).max()) * size > _MOST_MICROSECONDS:
        raise UnknownTimesError(f"they reach {values.max():g}, which is too far away")
    if values.dtype.kind != "f":
        whole = values.astype(np.int64)
        if size >= 1:
            return whole * int(size), 0
        return whole // 1000, int((whole % 1000).any())
    exact = values.astype(np.float64) * size
    for unit in _COARSEST_FIRST:
        grain = MICROSECONDS[unit]
        rounded = np.rint(exact / grain) * grain
        allowed = max(2 * rounding, _ACCUMULATED if unit == "ms" else 0)
        if rounding < grain / 4 and np.abs(rounded - exact).max() <= allowed:
            return rounded.astype(np.int64), 0
    return np.rint(exact).astype(np.int64), 1 + math.ceil(2 * rounding)


def _dated(microseconds: Int64Array, tolerance: int) -> Times:
    unit = coarsest_unit([microseconds], tolerance)
    size = MICROSECONDS[unit]
    return Times(microseconds // size, unit, tolerance // size)


def _undated(since: Int64Array, tolerance: int, calendar: str, reference: str) -> Times:
    """Times of a calendar whose days are none of ours: their differences are exact."""
    exact = (unit for unit in _COARSEST_FIRST if not (since % MICROSECONDS[unit]).any())
    unit = "us" if tolerance else next(exact)
    size, name = MICROSECONDS[unit], TIME_UNIT_NAMES[unit]
    note = f"calendar {calendar}: frame numbers are {name} since {reference}, not dates"
    return Times(since // size, None, tolerance // size, note)


def _counted(values: np.ndarray, units: str) -> Times:
    whole = np.rint(values).astype(np.int64)
    if (whole != values).any():
        raise UnknownTimesError(f"{units!r} counts no fixed time, and the values are not whole")
    return Times(whole, None, note=f"frame numbers are {units}, not dates")
