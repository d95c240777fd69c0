"""Names of files as streams, numbers and times, without a file."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from framewin.errors import SourceError
from framewin.sources.names import (
    NameRule,
    last_number,
    parse_step,
    streams_by_last_number,
    streams_by_regex,
    with_common_places,
    without_number,
)


def streams(*names: str) -> dict[str, list[int]]:
    """Stream -> numbers, by the last number; streams in their order."""
    found = streams_by_last_number(names, lambda name: f"in/{name}")
    assert [len(stream.file_names) for stream in found] == [len(s.numbers) for s in found]
    return {stream.name: stream.numbers.tolist() for stream in found}


def doubt(*names: str) -> str:
    """The text of the refusal."""
    with pytest.raises(SourceError) as caught:
        streams_by_last_number(names, lambda name: f"in/{name}")
    return str(caught.value)


def times(names: Sequence[str], regex: str, time_format: str | None = None) -> list[int]:
    """Microseconds that a rule reads of the names of one stream, sorted."""
    [stream] = streams_by_regex(names, "", NameRule(regex, time_format), str)
    assert stream.places == 0
    return stream.numbers.tolist()


def numbered(form: str, *numbers: int) -> list[str]:
    return [f"{form.format(n)}.png" for n in numbers]


DATES = ("2016-07-11", "2016_07_11")
SECONDS = (
    "20160711235501",
    *(f"20160711{s}235501" for s in "-_T"),
    *(f"{date}{s}23{t}55{t}01" for date in DATES for s in "-_T " for t in ("-", ":", "_", "")),
)
MINUTES = (
    "201607112355",
    *(f"20160711{s}2355" for s in "-_T"),
    *(f"{date}{s}23{t}55" for date in DATES for s in "-_T " for t in ("-", ":", "_", "")),
)
DAY, MINUTE, SECOND = datetime(2016, 7, 11), datetime(2016, 7, 11, 23, 55), timedelta(seconds=1)
STAMPS = [
    *((text, DAY) for text in DATES),
    *((text, MINUTE) for text in MINUTES),
    *((text, MINUTE + SECOND) for text in SECONDS),
    *((f"{text}.5", MINUTE + 1.5 * SECOND) for text in SECONDS),
    *((f"{text},000040", MINUTE + SECOND + timedelta(microseconds=40)) for text in SECONDS),
]
ZONES = {"Z": 0, "+00:00": 0, "+0130": 90, "-05:00": -300}


def reads_as_suggested(text: str, expected: datetime) -> bool:
    """Whether a name with this stamp is refused, and the suggested options read the time."""
    found = re.search("try frame_regex='(.*?)' and time_format='(.*?)'", doubt(f"r_{text}x.png"))
    assert found is not None, text
    since = expected - datetime(1970, 1, 1, tzinfo=UTC)
    wanted = since // timedelta(microseconds=1)
    return times([f"r_{text}x.png"], *found.groups()) == [wanted]


def test_stamps_are_read_as_suggested() -> None:
    """In each usual way to write one, with and without a zone."""
    for number, (text, expected) in enumerate(STAMPS):
        assert reads_as_suggested(text, expected.replace(tzinfo=UTC)), text
        if expected != DAY:
            zone, minutes = list(ZONES.items())[number % 4]
            there = timezone(timedelta(minutes=minutes))
            assert reads_as_suggested(text + zone, expected.replace(tzinfo=there)), text + zone


def test_times_without_a_zone_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the computer is."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert times(["1970-01-02.png"], "(?P<time>.*)[.]") == [86400 * 10**6]
        assert times(["01:00.png"], "(?P<time>.*)[.]", "%H:%M") == [-2208985200 * 10**6]
        assert times(["1970-01-01T09:00+09:00.png"], "(?P<time>.*)[.]") == [0]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("year", "is_stamp"), [(1899, False), (1900, True), (2100, True), (2101, False)]
)
def test_only_sensible_years_make_a_stamp(year: int, is_stamp: bool) -> None:
    """Other digits that could be read as a date are a counter."""
    names = numbered(f"{year}{{:010d}}", 1231235958, 1231235959)
    if is_stamp:
        assert "seem to carry time stamps" in doubt(*names)
    else:
        assert streams(*names) == {"": [int(name[:-4]) for name in names]}


def test_all_names_must_carry_the_stamp() -> None:
    """One that is no time makes all of them counters, wherever it is; so does more text."""
    good, bad = "201601010000.png", "201613010000.png"
    assert streams(good, bad) == streams(bad, good) == {"": [201601010000, 201613010000]}
    assert streams("1201601010000.png") == {"": [1201601010000]}
    assert streams("20160711.png", "20160712.png") == {"": [20160711, 20160712]}
    assert streams("201601010000_7.png") == {"": [7]}
    many = [f"2016010100{minute:02d}.png" for minute in range(60)] * 4
    assert "seem to carry" in doubt(*(f"{n}/{name}" for n, name in enumerate(many)))


def test_dates_without_separators_are_only_suggested() -> None:
    """Days and days of the year, where the numbers after them do not count frames."""
    text = doubt("20160711_5.png", "20160712_5.png")
    assert "try frame_regex='(?P<time>[0-9]{8})' and time_format='%Y%m%d'" in text
    text = doubt("161932045V_5.png", "161932050V_5.png")
    assert "try frame_regex='(?P<time>[0-9]{9})' and time_format='%y%j%H%M'" in text


def test_a_long_stream_leaves_a_single_frame_in_doubt() -> None:
    """From ten frames on; beside fewer, it is a clip of its own."""
    assert streams(*numbered("f{}", *range(9)), "cover1.png") == {
        "cover": [1],
        "f": list(range(9)),
    }
    text = doubt(*numbered("f{}", *range(10)), "cover1.png")
    assert text.startswith("in/cover1.png and f0.png differ in more than their last number, and")
    assert "try frame_regex='f(?P<frame>[0-9]+)', or leave some out by exclude=" in text


def test_single_frames_are_in_doubt_where_most_streams_are() -> None:
    """More than half of three streams or more."""
    pair = numbered("a{}", 1, 2), numbered("b{}", 1, 2)
    assert streams(*pair[0], *pair[1], "c1.png", "d1.png") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": [1],
        "d": [1],
    }
    assert streams("c1.png", "d2.png") == {"c": [1], "d": [2]}
    assert "streams of a single frame are in doubt" in doubt("c1.png", "d2.png", "e3.png")
    assert "in doubt" in doubt(*pair[0], *pair[1], "c1.png", "d1.png", "e1.png")
    assert "in doubt" in doubt(*pair[0], "c1.png", "d1.png")
    alone = ("a10_1.png", "a9_2x.png", "b3_1y.png")
    text = doubt(*alone)
    assert doubt(*alone[::-1]) == text
    pairs = (*pair[0], *pair[1], "c1.png", "d1.png", "e1.png")
    assert doubt(*pairs[::-1]) == doubt(*pairs)
    assert "try frame_regex='a9_(?P<frame>[0-9]+)', or leave" in text


def test_a_number_that_never_differs_does_not_count() -> None:
    """As in 1_of_2: the one before it may; not where the last one differs, or the texts do."""
    assert "try frame_regex='(?P<frame>[0-9]+)'" in doubt("1_of_2.png", "2_of_2.png")
    assert streams("a1_f5.png", "a1_f6.png", "a2_f5.png", "a2_f6.png") == {
        "a1_f": [5, 6],
        "a2_f": [5, 6],
    }
    assert streams("a1_f5.png", "a2_f6.png") == {"a1_f": [5], "a2_f": [6]}
    assert streams("a1_f5.png", "b2_f5.png") == {"a1_f": [5], "b2_f": [5]}
    assert streams("f5.png") == {"": [5]}


def test_numbers_of_62_bits() -> None:
    """Zeros before a number do not count; the next greater one is refused with the file."""
    last = 2**62 - 1
    assert streams(f"{0:030d}.png", f"{12:030d}.png", f"{last:030d}.png") == {"": [0, 12, last]}
    for digits in (f"{last + 1}", f"{last + 1:030d}", "9" * 30):
        message = "has a frame number above 4,611,686,018,427,387,903; say which digits count by "
        assert doubt(f"{digits}.png").startswith(f"in/{digits}.png {message}")
    rule = NameRule("(?P<frame>-?[0-9]+)")
    signed = streams_by_regex([f"-{last}.png", f"{last}.png"], "", rule, str)
    with_common_places(signed)
    assert [stream.numbers.tolist() for stream in signed] == [[-last, last]]


def test_decimals_have_common_places_in_all_streams() -> None:
    """1.5 and 2 beside 2.25 are 150, 200 and 225; the order is that of the numbers."""
    rule = NameRule("(?P<frame>[+-]?[0-9]+(?:[.,][0-9]+)?)[.]png")
    ones = streams_by_regex(["2.png", "-0,5.png", "1.5.png", "+3.png"], "", rule, str)
    others = streams_by_regex(["10.png", "2.25.png"], "", rule, str)
    assert [(s.file_names, s.numbers.tolist(), s.places) for s in (*ones, *others)] == [
        (["-0,5.png", "1.5.png", "2.png", "+3.png"], [-5, 15, 20, 30], 1),
        (["2.25.png", "10.png"], [225, 1000], 2),
    ]
    with_common_places([*ones, *others])
    assert [s.numbers.tolist() for s in (*ones, *others)] == [[-50, 150, 200, 300], [225, 1000]]
    assert [s.places for s in (*ones, *others)] == [2, 2]
    with_common_places([])


@pytest.mark.parametrize("digits", ["4611686018427387", "-4611686018427387"])
def test_decimals_do_not_wrap(digits: str) -> None:
    """Up to 2**62 after the common places; what is ten times as much is refused."""
    rule = NameRule("(?P<frame>-?[0-9]+(?:[.][0-9]+)?)[.]png")
    [stream] = streams_by_regex([f"{digits}.png", "0.001.png"], "", rule, str)
    assert sorted(stream.numbers.tolist()) == sorted([int(digits) * 1000, 1])
    with pytest.raises(SourceError, match=re.escape("too large to have 4 decimal places, which")):
        streams_by_regex([f"{digits}.png", "0.0001.png"], "", rule, str)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (3, (3, False)),
        ("1", (1, False)),
        (" 12 ", (12, False)),
        ("1us", (1, True)),
        ("2ms", (2000, True)),
        ("1.5s", (1_500_000, True)),
        ("0.0000016s", (2, True)),
        ("5 min", (300_000_000, True)),
        ("1h", (3_600_000_000, True)),
        ("2d", (172_800_000_000, True)),
    ],
)
def test_steps(step: int | str, expected: tuple[int, bool]) -> None:
    """A number of frames, or microseconds."""
    assert parse_step(step) == expected


@pytest.mark.parametrize("step", ["0", "0.0000004s", "0us"])
def test_steps_of_nothing(step: str) -> None:
    """They are refused as too small, by the option's name."""
    with pytest.raises(ValueError, match=re.escape(f"gap must be above 0, got {step!r}")):
        parse_step(step, "gap")


@pytest.mark.parametrize(
    "step", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}", "5 Min", "-1"]
)
def test_steps_that_are_none(step: str) -> None:
    """The units are listed."""
    message = f"gap must be a number, or a time in us, ms, s, min, h, d such as 5min; got {step!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_step(step, "gap")


@pytest.mark.parametrize(
    ("stem", "parts"),
    [
        ("", ("", "", "")),
        ("7", ("", "7", "")),
        ("a", ("a", "", "")),
        ("a7", ("a", "7", "")),
        ("7a", ("", "7", "a")),
        ("a12b034c.d", ("a12b", "034", "c.d")),
        ("a12\N{SUPERSCRIPT TWO}", ("a", "12", "\N{SUPERSCRIPT TWO}")),
    ],
)
def test_the_last_number_of_a_stem(stem: str, parts: tuple[str, str, str]) -> None:
    """The text before and after it, which together are the stem."""
    found = last_number(stem)
    assert "".join(found) == stem
    assert parts[1] == "" or found == parts


def test_suffixes_are_not_numbers() -> None:
    """A suffix that is not all digits is none of the name; one that is, is its number."""
    assert without_number(["a.mp4", "1.png", ".mp4", "a.1", "b.jp2", ".7"]) == ["a.mp4", "b.jp2"]
    assert streams("a.1", "a.02") == {"": [1, 2]}
    assert streams("a1.jp2", "a3.jp2") == {"": [1, 3]}


NEGATIVE = (
    "look like negative numbers; try frame_regex='(?P<frame>-?[0-9]+(?:[.,][0-9]+)?)[^0-9]*$'"
)
DECIMAL = "whose order is in doubt; try frame_regex='(?P<frame>[0-9]+(?:[.,][0-9]+)?)'"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["-3.png", "-2.png", "-1.png"], f"in/-1.png and -2.png {NEGATIVE}"),
        (["x_-3.png"], f"in/x_-3.png {NEGATIVE}"),
        (["x(-3).png"], f"in/x(-3).png {NEGATIVE}"),
        (["\N{MINUS SIGN}3.png"], f"in/\N{MINUS SIGN}3.png {NEGATIVE}"),
        (["x-1.png", "x-2.png", "x1.png"], f"in/x1.png and x-1.png {NEGATIVE}"),
        (["x-0.5.png", "x0.5.png"], f"in/x0.5.png and x-0.5.png {NEGATIVE}"),
        (["x=-0,5.png", "x=-1,5.png"], f"in/x=-0,5.png {NEGATIVE}"),
        (["f_-03.png", "f_-02.png", "f_04.png"], f"in/f_04.png and f_-02.png {NEGATIVE}"),
        (
            ["1.125.png", "1.5.png", "1.25.png"],
            "in/1.5.png and 1.125.png look like decimal numbers of",
        ),
        (["f1,125s.png", "f1,5s.png"], f"look like decimal numbers of different length, {DECIMAL}"),
        (["0.5.png", "1.5.png"], f"in/0.5.png and 1.5.png look like decimal numbers {DECIMAL}"),
        (
            ["0.1.png", "0.2.png", "1.1.png", "2.1.png", "3.1.png", "4.1.png"],
            "and 2 more look like",
        ),
    ],
)
def test_signs_and_decimals_are_in_doubt(names: list[str], message: str) -> None:
    """Two of the files are named, in natural order, and an expression for each meaning.

    Which ones does not depend on the order in which a file system lists them.
    """
    text = doubt(*names)
    assert doubt(*names[::-1]) == text
    assert message in text
    if "negative" in message:
        assert text.endswith(
            "or, where the dash is no sign, frame_regex='(?P<frame>[0-9]+)[^0-9]*$'"
        )


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["frame-3.png", "frame-2.png"], {"": [2, 3]}),
        (["x1-3.png", "x1-2.png"], {"": [2, 3]}),
        (["foo--0000.png", "foo--0001.png"], {"": [0, 1]}),
        (["foo -0007.png", "foo -0008.png"], {"": [7, 8]}),
        (["-10.png", "-0.png"], {"": [0, 10]}),
        (["1.25.png", "1.50.png"], {"": [25, 50]}),
        (["a1.5.png", "b2.5.png"], {"a1": [5], "b2": [5]}),
        (["a1.5x.png", "a2.5y.png"], {"a1_x": [5], "a2_y": [5]}),
        (["v1.5_7.png", "v1.5_12.png"], {"": [7, 12]}),
    ],
)
def test_dashes_and_dots_that_are_none(names: list[str], found: dict[str, list[int]]) -> None:
    """A dash after a letter or before zeros, and decimals of one length and one whole part."""
    assert streams(*names) == found


def grid(form: str, *counts: int) -> list[str]:
    """Names of all combinations of numbers from 0."""
    return [f"{form.format(*place)}.png" for place in np.ndindex(*counts)]


@pytest.mark.parametrize(
    ("names", "frame"),
    [
        (grid("t{:02d}_{:02d}", 18, 17), "t"),
        (grid("x{}_c{}", 2, 2), "x"),
        (grid("x{}_c{}", 2, 9), "x"),
        (grid("s{}_t{}_c{}", 3, 2, 2), "s[0-9]+_t"),
        (grid("s{}_t{}_x{}", 2, 2, 3), "s[0-9]+_t"),
        (grid("a{}_b{}_c{}", 2, 3, 2), "a[0-9]+_b"),
        (grid("a{}_b{}_c{}", 3, 2, 2), "a"),
        (grid("T{}-Ch_{}", 2, 2), "T"),
        (grid("t0_x{}_c{}", 2, 2), "t[0-9]+_x"),
    ],
)
def test_a_channel_may_be_last(names: list[str], frame: str) -> None:
    """The time is then suggested to be the number whose text says so, or that has most values."""
    text = doubt(*names)
    assert doubt(*names[::-1]) == text
    assert "the last number may be a channel or plane, not the time; try " in text
    begin = re.escape(frame).replace(re.escape("[0-9]+"), "[0-9]+")
    assert f"try frame_regex='(?:^|/){begin}(?P<frame>[0-9]+)[-_. ]*(?P<clip>[^/]+)[.]', or" in text
    [first, *_] = names
    assert text.startswith(f"in/{first} and ")


@pytest.mark.parametrize(
    ("names", "clips", "frames"),
    [
        (grid("{:02d}_{:02d}", 17, 16), 17, 16),
        (grid("{:02d}_{:02d}", 16, 16), 16, 16),
        (grid("t0_x{:02d}_{:02d}", 18, 17), 18, 17),
        (grid("cam{}_f{}", 9, 2), 9, 2),
        (grid("c{}_t{}", 2, 2), 2, 2),
        (grid("c3_x2_{}", 5), 1, 5),
        (grid("t0_c{}", 5), 1, 5),
        (grid("img{}_t{}", 9, 2), 9, 2),
    ],
)
def test_no_channel_is_last(names: list[str], clips: int, frames: int) -> None:
    """No text that means channels or an earlier time, or one before it that means time."""
    assert list(streams(*names).values()) == [list(range(frames))] * clips


def test_two_files_of_one_number() -> None:
    """Both are named, sorted, in any order and among others."""
    names = ["f4.png", "f3.png", "f04.png", "f2.png", "f5.png"]
    for given in (names, names[::-1]):
        assert doubt(*given).startswith("in/f04.png and f4.png both have frame number 4; rename or")
    with pytest.raises(SourceError, match=r"^b1\.tif and c1\.png both have frame number 1; rename"):
        streams_by_regex(["c1.png", "b1.tif", "a2.png"], "", NameRule("(?P<frame>[0-9])"), str)
    assert "accents" not in doubt(*names)


def test_names_without_a_number() -> None:
    """The first three are named, and how many more there are."""
    assert doubt("b.png", "a.png", "1.png").startswith("in/a.png and b.png have no number in their")
    assert doubt("a.png").startswith("in/a.png has no number in its name; expected one that gives")
    text = doubt(*(f"{letter}.png" for letter in "edcba"))
    assert text.startswith("in/a.png and b.png and c.png and 2 more have no number in their name")


def test_a_rule_that_does_not_match_all_names() -> None:
    """Those that it misses are named; clips are told apart by their group, in natural order."""
    names = ["cam10_1.png", "cam2_1.png", "cam2_0.png", "_7.png"]
    rule = NameRule("(?P<clip>cam[0-9]+)?_(?P<frame>[0-9]+)")
    found = streams_by_regex(names, "x/", rule, str)
    assert [(s.name, s.file_names, s.numbers.tolist()) for s in found] == [
        ("", ["_7.png"], [7]),
        ("cam2", ["cam2_0.png", "cam2_1.png"], [0, 1]),
        ("cam10", ["cam10_1.png"], [1]),
    ]
    with pytest.raises(
        SourceError, match=r"^cam2_0\.png and cam2_1\.png: no match of frame_regex="
    ):
        streams_by_regex(names, "x/", NameRule("(x/_|0_)(?P<frame>[0-9]+)"), str)
    [stream] = streams_by_regex(["3.png"], "day7/", NameRule("day(?P<frame>[0-9]+)/3"), str)
    assert stream.numbers.tolist() == [7]


def test_a_rule_says_what_it_reads() -> None:
    """Times and clips, where its groups are so called."""
    rules = ("(?P<frame>.)", "(?P<time>.)", "(?P<clip>.)(?P<frame>.)", "(?P<clip>.)(?P<time>.)")
    found = [(NameRule(rule).reads_times, NameRule(rule).names_clips) for rule in (None, *rules)]
    assert found == [(False, False), (False, False), (True, False), (False, True), (True, True)]
    with pytest.raises(ValueError, match=r"time_format needs a frame_regex with a group"):
        NameRule(None, "%Y")
    for wrong in ("(?P<clip>.)", "(?P<frame>.)(?P<time>.)", "(?P<frame>.)(?P<x>.)", "(.)"):
        with pytest.raises(ValueError, match=r"; expected \(\?P<frame>\.\.\.\) or \(\?P<time>"):
            NameRule(wrong)
    with pytest.raises(ValueError, match=r"time_format needs a frame_regex with a group"):
        NameRule("(?P<frame>.)", "%Y")
