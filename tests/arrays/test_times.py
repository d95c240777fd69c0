"""Times of frames, against cftime and plain arithmetic."""

from __future__ import annotations

import re

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin.arrays.times import UnknownTimesError, read_times
from framewin.schema import TIME_UNITS, ClipTable

SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def read(values: object, units: str = "", calendar: str = "standard", **attributes: object):
    return read_times(np.asarray(values), {"units": units, "calendar": calendar, **attributes})


@given(
    unit=st.sampled_from(list(SECONDS)),
    reference=st.sampled_from(["1-1-1 00:00:0.0", "1900-1-1 00:00", "2000-1-1", "2000-1-1 06:00"]),
    calendar=st.sampled_from(["standard", "gregorian", "proleptic_gregorian", "julian"]),
    years=st.integers(0, 100),
    steps=st.lists(st.integers(1, 1000), min_size=1, max_size=6),
)  # fmt: skip
def test_real_calendars(
    unit: str, reference: str, calendar: str, years: int, steps: list[int]
) -> None:
    """Dates after 1970 are the same moments by cftime, whatever the reference and calendar."""
    units = f"{unit} since {reference}"
    first = cftime.date2num(cftime.datetime(1970 + years, 3, 1, calendar=calendar), units, calendar)
    values = int(first) + np.cumsum([0, *steps])
    found = read(values, units, calendar)
    epoch = cftime.datetime(1970, 1, 1, calendar=calendar)
    behind = 13 * 86400 if calendar == "julian" else 0  # as far as that calendar is, since 1900
    expected = [
        (date - epoch).total_seconds() + behind for date in cftime.num2date(values, units, calendar)
    ]
    assert (found.numbers / TIME_UNITS[found.unit]).tolist() == expected
    assert (found.tolerance, found.note) == (0, None)


@pytest.mark.parametrize("calendar", ["noleap", "365_day", "all_leap", "366_day", "360_day"])
def test_calendars_without_real_days(calendar: str) -> None:
    """Frames are numbered by exact differences, in the coarsest unit, and it is said."""
    found = read([57, 58, 59, 60, 62], "days since 2000-01-01 00:00:00", calendar)
    assert (found.numbers.tolist(), found.unit) == ([57, 58, 59, 60, 62], None)
    assert found.note == (
        f"calendar {calendar}: frame numbers are days since 2000-01-01 00:00:00, not dates"
    )
    assert read([0.25, 0.5, 1.0], "days since 2000-01-01", calendar).numbers.tolist() == [6, 12, 24]


@pytest.mark.parametrize(
    ("units", "microseconds"),
    [
        ("d since 1970-1-2", 2 * 86400 * 10**6),
        ("Hours Since 1970-01-01T00:00:00Z", 3600 * 10**6),
        ("hrs since 1970-01-01 00:00:00 UTC", 3600 * 10**6),
        ("min since 1970-01-01 00:00 +01:00", -3540 * 10**6),
        ("s since 1970-01-01 00:00:00 -6:30", (6 * 3600 + 1801) * 10**6),
        ("sec after 1970-01-01 00:00:00.5", 1_500_000),
        ("millisecs since 1970-01-01", 1000),
        ("usec since 1970-01-01", 1),
        ("weeks since 1970-01-01", 7 * 86400 * 10**6),
    ],
)
def test_spellings_of_units(units: str, microseconds: int) -> None:
    """The value 1 in units as files spell them."""
    found = read([1], units)
    assert found.numbers.tolist() == [microseconds * TIME_UNITS[found.unit] // 10**6]


def test_fractions() -> None:
    """Fractions of days are the whole times that are meant; thirds of milliseconds stay uneven."""
    minutes = np.arange(0, 3000, 5)
    for dtype in ("float64", "float32"):
        days = (minutes / 1440).astype(dtype)
        found = read(days, "days since 2020-01-01")
        assert (found.numbers - 1_577_836_800).tolist() == (60 * minutes).tolist()
        assert (found.unit, found.tolerance) == ("s", 0)
    accumulated = np.cumsum(np.full(3000, 1 / 288)) + 20_000
    found = read(accumulated, "days since 1970-01-01")
    assert set(np.diff(found.numbers).tolist()) == {300}
    found = read(np.arange(40) / 30, "seconds since 2020-01-01")
    assert (found.unit, set(np.diff(found.numbers).tolist())) == ("us", {33333, 33334})
    table = ClipTable.from_frame_numbers(
        ["a"], [found.numbers], time_unit="us", tolerance=found.tolerance
    )
    assert (table.segment_lengths.tolist(), table.step) == ([40], 33333)
    assert table.frame_numbers(np.arange(40)).tolist() == found.numbers.tolist()


def test_packed_and_counted_times() -> None:
    """Packed values are unpacked; whole months are counted, for they do not last equally long."""
    found = read([0, 1, 2], "hours since 1970-01-01", scale_factor=0.5, add_offset=1.0)
    assert (found.numbers.tolist(), found.unit) == ([3600, 5400, 7200], "s")
    found = read([1, 2, 4], "months since 2000-01")
    assert (found.numbers.tolist(), found.unit) == ([1, 2, 4], None)
    assert found.note == "frame numbers are months since 2000-01, not dates"


def test_datetime64() -> None:
    """Of any unit, in the coarsest that is exact; finer than microseconds they are cut."""
    stamps = np.array(["2024-06-01T00:00", "2024-06-01T00:05", "2024-06-01T00:15"], "M8[m]")
    for unit in ("m", "s", "ms", "us", "ns"):
        found = read(stamps.astype(f"M8[{unit}]"))
        assert (np.diff(found.numbers).tolist(), found.unit) == ([300, 600], "s")
    found = read(np.array([0, 33_333_333, 66_666_667], "M8[ns]"))
    assert (found.numbers.tolist(), found.tolerance) == ([0, 33333, 66666], 1)


@pytest.mark.parametrize(
    ("values", "attributes", "message"),
    [
        ([0, np.nan], {"units": "days since 2000-01-01"}, "frame 1 has no time"),
        (np.array(["2000", "NaT"], "M8[D]"), {}, "frame 1 has no time"),
        ([0.5, 1], {"units": "months since 2000-01-01"}, "the values are not whole"),
        ([0], {"units": "days since 2000-02-30"}, "the reference time of"),
        ([0], {"units": "days since 2000-01-01 12"}, "the reference time of"),
        ([2**60], {"units": "days since 2000-01-01"}, "too far away"),
    ],
)  # fmt: skip
def test_times_that_are_not_understood(values: object, attributes: dict, message: str) -> None:
    """They are never guessed."""
    with pytest.raises(UnknownTimesError, match=re.escape(message)):
        read_times(np.asarray(values), attributes)


def test_values_that_are_no_times() -> None:
    """Without units that say since when, and no text."""
    assert read([1, 2]) is None
    assert read([1, 2], "days") is None
    assert read(["a"], "days since 2000-01-01") is None
