"""From names to clips and numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin.errors import SourceError
from framewin.sources.info import ListRule
from framewin.sources.listing import list_frames
from framewin.sources.names import NameRule, natural_key, parse_step, streams_by_last_number
from framewin.sources.steps import stated_steps
from tests.conftest import ROOT


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["10.png", "9.png", "1.png"], ["1.png", "9.png", "10.png"]),
        (["f_010.png", "f_9.png"], ["f_9.png", "f_010.png"]),
        (["f0.png", "f1.PNG", "f2.Png"], ["f0.png", "f1.PNG", "f2.Png"]),
        (["T76S3F00002.png", "T76S3F00001.png"], ["T76S3F00001.png", "T76S3F00002.png"]),
        (["7.depth.png", "10.depth.png"], ["7.depth.png", "10.depth.png"]),
        (["take (b)-10.png", "take (b)-9.png"], ["take (b)-9.png", "take (b)-10.png"]),
        (["1.125.png", "1.250.png", "1.025.png"], ["1.025.png", "1.125.png", "1.250.png"]),
    ],
)
def test_frames_are_in_numeric_order(tmp_path: Path, names: list[str], ordered: list[str]) -> None:
    """The last number counts, whatever its padding and the suffix's case."""
    [clip] = list_frames(touch(tmp_path / "walk", *names)).clips
    assert (clip.name, clip.file_names) == ("walk", ordered)


def test_clips_are_folders_at_any_depth(tmp_path: Path) -> None:
    """Each folder that holds frames is a clip named by its path, in natural order."""
    source = touch(tmp_path, "cam10/0.png", "cam2/b/0.png", "cam2/b/1.png", "5.png", "cam2/a/3.png")
    listing = list_frames(source)
    assert [clip.name for clip in listing.clips] == [tmp_path.name, "cam2/a", "cam2/b", "cam10"]
    assert [clip.numbers.tolist() for clip in listing.clips] == [[5], [3], [0, 1], [0]]


def test_a_folder_named_like_its_source(tmp_path: Path) -> None:
    """The source's own clip gives way, so that names stay unique."""
    source = touch(tmp_path / "run", "0.png", "run/0.png")
    assert [clip.name for clip in list_frames(source).clips] == [".", "run"]


def test_droppings_are_counted_not_taken(tmp_path: Path) -> None:
    """What Finder, Explorer and people leave behind is no frame, and is reported."""
    names = ["001.png", "002.png", "._001.png", ".DS_Store", "Thumbs.db", "notes.txt"]
    (tmp_path / "003.png").mkdir()
    listing = list_frames(touch(tmp_path, *names))
    assert [clip.file_names for clip in listing.clips] == [["001.png", "002.png"]]
    assert {reason: entry.count for reason, entry in listing.skipped.items()} == {
        "hidden": 2,
        "of another kind": 2,
        "folder named like a frame": 1,
    }


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    """A link into another tree counts, a loop ends, and no frame comes twice."""
    source = touch(tmp_path / "root", "a/0.png", "a/1.png")
    elsewhere = touch(tmp_path / "elsewhere", "0.png", "1.png", "2.png")
    (source / "b").symlink_to(elsewhere)
    (source / "a" / "loop").symlink_to(source)
    (source / "again").symlink_to(source / "a")
    clips = list_frames(source).clips
    assert [(clip.name, len(clip.file_names)) for clip in clips] == [("a", 2), ("b", 3)]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30, unique=True), st.randoms())
def test_numbers_sort_whatever_the_padding(tmp_path_factory, numbers, random) -> None:
    """Random padding never changes the order."""
    folder = tmp_path_factory.mktemp("padding")
    names = {n: f"img{str(n).zfill(random.randint(1, 9))}.png" for n in numbers}
    [clip] = list_frames(touch(folder, *names.values())).clips
    assert clip.numbers.tolist() == sorted(numbers)
    assert clip.file_names == [names[n] for n in sorted(numbers)]


def test_natural_key_orders_mixed_text() -> None:
    """Digits compare as numbers, text as text, and neither breaks the other."""
    names = ["b", "10", "a10b2", "a2", "2", "a10b10", ""]
    assert sorted(names, key=natural_key) == ["", "2", "10", "a2", "a10b2", "a10b10", "b"]


def listed(source: Path, **rule: object) -> dict[str, tuple[list[str], list[int]]]:
    """Clip -> (names of its frames, their numbers), by a rule."""
    names = NameRule(rule.pop("regex", None), rule.pop("time_format", None))
    clips = list_frames(source, ListRule(names, **rule)).clips
    return {clip.name: (clip.file_names, clip.numbers.tolist()) for clip in clips}


@pytest.mark.parametrize(
    ("names", "clips"),
    [
        (
            ["cam2_f9.png", "cam2_f10.png", "cam10_f2.png"],
            {"walk/cam2_f": [9, 10], "walk/cam10_f": [2]},
        ),
        (["cam2_f9.png", "cam10_f2.png"], {"walk/cam2_f": [9], "walk/cam10_f": [2]}),
        (["shot-01_0001.png", "shot-01_0002.png"], {"walk": [1, 2]}),
        (
            [f"frame-{n:06d}.{kind}.png" for kind in ("depth", "color") for n in (0, 1, 2)],
            {"walk/color": [0, 1, 2], "walk/depth": [0, 1, 2]},
        ),
        (["a1.png", "a2.png", "b_1x.png", "b_2x.png"], {"walk/a": [1, 2], "walk/b_x": [1, 2]}),
        (["a1.png", "a2.png", "a_1.png", "a_2.png"], {"walk/a": [1, 2], "walk/a_": [1, 2]}),
        (["l-1.png", "l-2.png", "1.png", "2.png"], {"walk/frames": [1, 2], "walk/l": [1, 2]}),
        (  # when a recording began is no time of a frame
            [f"20160711_120000_{n}.png" for n in (1, 2, 3)],
            {"walk": [1, 2, 3]},
        ),
        (["1.tif", "2.TIFF", "3.jpeg", "4.bmp", "5.webp"], {"walk": [1, 2, 3, 4, 5]}),
    ],
)
def test_streams_of_one_folder_are_clips(
    tmp_path: Path, names: list[str], clips: dict[str, list[int]]
) -> None:
    """The text around the last number tells them apart."""
    found = listed(touch(tmp_path / "walk", *names))
    assert {name: numbers for name, (_, numbers) in found.items()} == clips
    assert list(found) == list(clips)


FIVE_MINUTES = 300


@pytest.mark.parametrize(
    ("names", "rule", "numbers", "step", "unit"),
    [
        (  # the day of the year, across midnight
            ["AQC161932355V.png", "AQC161940000V.png"],
            {"regex": "AQC(?P<time>[0-9]{9})", "time_format": "%y%j%H%M"},
            [1468281300, 1468281600],
            None,
            "s",
        ),
        (  # across a year
            ["r_202012312355.png", "r_202101010000.png"],
            {"regex": "_(?P<time>[0-9]+)", "time_format": "%Y%m%d%H%M", "step": "5min"},
            [1609458900, 1609459200],
            FIVE_MINUTES,
            "s",
        ),
        (  # fractions of a second
            ["2020-01-01T00-00-00.500.png", "2020-01-01T00-00-00.540.png"],
            {"regex": "^(?P<time>.+)[.]png", "time_format": "%Y-%m-%dT%H-%M-%S.%f"},
            [1577836800500, 1577836800540],
            None,
            "ms",
        ),
        (  # ISO 8601 with a zone
            ["2020-01-01T01:00:00+01:00.png", "2020-01-01T00:00:01Z.png"],
            {"regex": "(?P<time>.+)[.]png", "step": "40ms"},
            [1577836800000, 1577836801000],
            40,
            "ms",
        ),
        (  # decimals are numbers
            ["1.125s.png", "1.25s.png", "1.5s.png", "10,5s.png"],
            {"regex": "(?P<frame>[0-9]+(?:[.,][0-9]+)?)"},
            [1125, 1250, 1500, 10500],
            None,
            None,
        ),
        (["x1y7.png", "x2y5.png"], {"regex": "x(?P<frame>[0-9]+)", "step": "2"}, [1, 2], 2, None),
    ],
)
def test_names_by_regular_expression(
    tmp_path: Path,
    names: list[str],
    rule: dict[str, object],
    numbers: list[int],
    step: int | None,
    unit: str | None,
) -> None:
    """Stamps are read by a format, in the coarsest unit that is exact, decimals as numbers."""
    source = touch(tmp_path / "walk", *reversed(names))
    assert listed(source, **dict(rule)) == {"walk": (names, numbers)}
    names_rule = NameRule(rule.get("regex"), rule.get("time_format"))
    list_rule = ListRule(names_rule, step=rule.get("step"))
    assert list_frames(source, list_rule).time_unit == unit
    assert stated_steps(list_rule, unit) == (step, 0)


@pytest.mark.usefixtures("local_zone")
def test_times_are_read_as_utc(tmp_path: Path) -> None:
    """Wherever the computer is, also in the hours that its clock leaves out or shows twice."""
    iso, compact = "(?P<time>.+)[.]png", ("(?P<time>[0-9]+)", "%Y%m%d%H%M")
    stamped = ("(?P<time>.+)[.]png", "%Y-%m-%dT%H%M%S%z")
    for number, (names, rule, seconds) in enumerate((
        (["2026-03-08T01:30", "2026-03-08T02:30", "2026-03-08T03:30"], (iso, None),
         [1772933400, 1772937000, 1772940600]),
        (["202611010030", "202611010130", "202611010230"], compact,
         [1793493000, 1793496600, 1793500200]),
        (["2026-01-01T0000+05:30", "2026-01-01T00:00Z", "2025-12-31T20:00-05:00"], (iso, None),
         [1767205800, 1767225600, 1767229200]),
        (["2026-01-01T000000+0530", "2026-01-01T000000Z"], stamped, [1767205800, 1767225600]),
    )):  # fmt: skip
        source = touch(tmp_path / f"{number}", *(f"{name}.png" for name in names))
        [(found, numbers)] = listed(source, regex=rule[0], time_format=rule[1]).values()
        assert (found, numbers) == ([f"{name}.png" for name in names], seconds)


def test_clips_by_regular_expression(tmp_path: Path) -> None:
    """The group `clip` gathers frames from any folder."""
    source = touch(tmp_path, "mon/left_1.png", "tue/left_2.png", "tue/right_1.png")
    assert listed(source, regex="(?P<clip>[a-z]+)_(?P<frame>[0-9]+)") == {
        "left": (["mon/left_1.png", "tue/left_2.png"], [1, 2]),
        "right": (["tue/right_1.png"], [1]),
    }


def test_globs_choose(tmp_path: Path) -> None:
    """By the path below the source; what was not chosen is counted."""
    names = [f"{folder}/{n}.{kind}.png" for folder in "ab" for n in (1, 2) for kind in "cd"]
    source = touch(tmp_path, *names)
    assert list(listed(source, include=("*.d.png",))) == ["a", "b"]
    assert list(listed(source, include=("a/*", "b/1.*"), exclude=("*.c.png",))) == ["a", "b"]
    skipped = list_frames(source, ListRule(exclude=("b/*", "*.c.png"))).skipped
    assert {reason: entry.count for reason, entry in skipped.items()} == {"not chosen": 6}
    with pytest.raises(SourceError, match=r"\(8 other files\).* or change include= and exclude="):
        listed(source, include=("*.jpg",))


def test_files_that_are_clips(tmp_path: Path) -> None:
    """Each video or animation is a clip, named by its path; unique, and in natural order."""
    source = touch(tmp_path / "v", "b10.mp4", "b9.avi", "b9.mkv", "c.gif", "c/1.png", "1.npz")
    clips = list_frames(source).clips
    assert [clip.name for clip in clips] == ["1", "b9.avi", "b9.mkv", "b10", "c.gif", "c"]
    [clip] = list_frames(source / "b10.mp4").clips
    assert (clip.name, clip.path) == ("b10", str(source / "b10.mp4"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["f_1.png", "f_01.png"], "f_01.png and f_1.png both have frame number 1; rename or"),
        (["f_1.png", "f_1.tif"], "f_1.png and f_1.tif both have frame number 1; rename or"),
        (["a.png"], "a.png has no number in its name; expected one that gives its place in time"),
        (["²³.png"], "²³.png has no number in its name"),
        (
            ["1.125.png", "1.25.png", "1.5.png"],
            "1.5.png and 1.125.png look like decimal numbers of different length, whose order is "
            "in doubt; try frame_regex='(?P<frame>[0-9]+(?:[.,][0-9]+)?)'",
        ),
        (["0.1s.png", "0.9s.png", "1.0s.png"], "0.1s.png and 1.0s.png look like decimal numbers"),
        (
            ["AQC161932045V_5.png", "AQC161932050V_5.png", "AQC161932055V_5.png"],
            "differ in more than their last number, and streams of a single frame are in doubt; "
            "try frame_regex='(?P<time>[0-9]{9})' and time_format='%y%j%H%M', or",
        ),
        (
            [*(f"f{n}.png" for n in range(12)), "cover_1.png"],
            "cover_1.png and f0.png differ in more than their last number, and streams of a single "
            "frame are in doubt; try frame_regex='f(?P<frame>[0-9]+)', or leave some out",
        ),
        (["f_1_of_2.png", "f_2_of_2.png"], "are in doubt; try frame_regex='f_(?P<frame>[0-9]+)'"),
        (["RAD_5min_201008260000.png"], "'(?P<time>[0-9]{12})' and time_format='%Y%m%d%H%M'"),
        (
            ["c7_x1_v2.png", "c7_x2_v2.png", "c7_x3_v2.png"],
            "single frame are in doubt; try frame_regex='c7_x(?P<frame>[0-9]+)', or leave",
        ),
        (
            ["r_20160711_2355.png", "r_20160712_0000.png"],
            "r_20160711_2355.png and r_20160712_0000.png seem to carry time stamps, which do not "
            "count frames; try frame_regex='(?P<time>[0-9]{8}_[0-9]{4})' and "
            "time_format='%Y%m%d_%H%M', or for plain numbers",
        ),
        (["20160711235500.png", "20160711235600.png"], "try frame_regex='(?P<time>[0-9]{14})'"),
        (
            ["t_2016-07-11T23-55-00.040.png", "t_2016-07-11T23-55-01.000.png"],
            "'(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}-[0-9]{2}[.][0-9]{1,6})' "
            "and time_format='%Y-%m-%dT%H-%M-%S.%f'",
        ),
        (["2016-07-11_23-55-00.png"], "time_format='%Y-%m-%d_%H-%M-%S'"),
        (
            ["f92233720368547758070.png"],
            "has a frame number above 4,611,686,018,427,387,903; say which",
        ),
        (["notes.txt"], "holds no frame or clip (1 other files); expected .png, .apng, .jpg"),
    ],
)
def test_doubtful_names_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    """One line with the files, and what to do."""
    with pytest.raises(SourceError, match=re.escape(message)):
        list_frames(touch(tmp_path, *names))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"regex": "b(?P<frame>[0-9]+)"},
            "a1_x.png: no match of frame_regex='b(?P<frame>[0-9]+)'; change",
        ),
        ({"regex": "(?P<frame>x)"}, "a1_x.png has the frame 'x'; expected a number, change"),
        (
            {"regex": "(?P<time>[0-9])", "time_format": "%Y"},
            "a1_x.png has the time '1'; expected time_format='%Y', change",
        ),
        ({"regex": "(?P<time>[0-9])"}, "a1_x.png has the time '1'; expected ISO 8601, change"),
        (
            {"regex": "(?P<time>[0-9])", "time_format": "%H", "step": "5"},
            "step='5' does not fit; expected a time such as 5min, in whole us",
        ),
    ],
)
def test_rules_that_do_not_fit(tmp_path: Path, rule: dict[str, object], message: str) -> None:
    """The file, what was found, and which option to change."""
    with pytest.raises(SourceError, match=re.escape(message)):
        listed(touch(tmp_path, "a1_x.png"), **rule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("(", None), "frame_regex '(' is not valid"),
        (("(?P<n>.)", None), "has the groups n; expected (?P<frame>...) or (?P<time>...)"),
        (("(?P<frame>.)(?P<time>.)", None), "has the groups frame, time; expected"),
        ((None, "%Y"), "time_format needs a frame_regex"),
        (("(?P<frame>.)", "%Y"), "time_format needs a frame_regex with a group (?P<time>...)"),
    ],
)
def test_wrong_rules(arguments: tuple[str | None, str | None], message: str) -> None:
    """A regular expression must compile and have the groups that are used."""
    with pytest.raises(ValueError, match=re.escape(message)):
        NameRule(*arguments)


@pytest.mark.parametrize("step", ["0", "5 lightyears", "min", "-1", "0s", ""])
def test_wrong_steps(step: str) -> None:
    """A step is a number above 0, or a time."""
    with pytest.raises(ValueError, match="step must be"):
        parse_step(step)


def test_missing_sources(tmp_path: Path) -> None:
    """A file that is no clip, or nothing, where a folder is expected."""
    touch(tmp_path, "file.txt")
    with pytest.raises(SourceError, match=r"file.txt is a file; expected a folder of frames or"):
        list_frames(tmp_path / "file.txt")
    with pytest.raises(SourceError, match=r"none does not exist; expected a folder"):
        list_frames(tmp_path / "none")


def test_a_dead_link_is_named(tmp_path: Path) -> None:
    """A frame that is a broken link stops the listing."""
    touch(tmp_path, "0.png")
    (tmp_path / "1.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(SourceError, match=r"1\.png is a broken link; remove or repair them"):
        list_frames(tmp_path)


def test_many_names_take_little_memory() -> None:
    """At most 300 bytes for each, and no file is opened."""
    script = ROOT / "scripts" / "measure_listing.py"
    command = [sys.executable, script, "--count", "60000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.fullmatch(r"60000 names, .* s, (\d+) bytes a name, 0 files opened\n", done.stdout)
    assert match is not None
    # The names alone, 17 bytes each and 49 of the object.
    assert 66 < int(match[1]) <= 300


STEMS = st.text("abz_-.", min_size=1, max_size=5).filter(
    lambda text: text.strip("_-. ") and not text.endswith("-")  # which may be a sign
)


@given(
    st.dictionaries(
        STEMS,
        st.lists(st.integers(0, 9999), min_size=2, max_size=9, unique=True),
        min_size=1,
        max_size=5,
    )
)
def test_streams_come_back(streams: dict[str, list[int]]) -> None:
    """Whatever stands before the numbers, each stream has its own, in order."""
    names = [f"{stem}{n}.png" for stem, numbers in streams.items() for n in numbers]
    found = streams_by_last_number(names, str)
    assert sorted(stream.numbers.tolist() for stream in found) == sorted(
        sorted(numbers) for numbers in streams.values()
    )
    assert len({stream.name for stream in found}) == len(streams)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """What is passed over can be printed all the same."""
    source = touch(tmp_path, "1.png", "\udcff.txt")
    example = list_frames(source).skipped["of another kind"].example
    assert example == "\\xff.txt"


def test_two_frames_of_one_time(tmp_path: Path) -> None:
    """Both are named."""
    source = touch(tmp_path, "a_1200.png", "b_1200.png")
    with pytest.raises(
        SourceError, match=r"a_1200\.png and b_1200\.png both have the time, in mic"
    ):
        listed(source, regex="_(?P<time>[0-9]+)", time_format="%H%M")


@pytest.mark.parametrize(
    ("pattern", "clips", "frames"),
    [("seq_{:03d}_{}", 40, 10), ("{:03d}_{:02d}", 20, 12), ("video{:03d}_w{:02d}", 9, 7)],
)
def test_short_sequences_are_no_channels(
    tmp_path: Path, pattern: str, clips: int, frames: int
) -> None:
    """Where no text before a number says so, however few frames each has."""
    grid = [(clip, frame) for clip in range(clips) for frame in range(frames)]
    touch(tmp_path, *(f"{pattern.format(*place)}.png" for place in grid))
    found = list_frames(tmp_path).clips
    assert [clip.numbers.tolist() for clip in found] == [list(range(frames))] * clips


def test_negative_numbers(tmp_path: Path) -> None:
    """Beside positive ones they are in doubt; the suggested expression orders them."""
    for number in (-3, -1, 0, 2):
        (tmp_path / f"{number}.png").touch()
    with pytest.raises(SourceError, match="look like negative numbers; try"):
        list_frames(tmp_path)
    rule = ListRule(NameRule(r"(?P<frame>-?[0-9]+)"))
    [clip] = list_frames(tmp_path, rule).clips
    assert clip.numbers.tolist() == [-3, -1, 0, 2]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["frame_-3.png", "frame_-2.png"], "frame_-2.png and frame_-3.png look like negative"),
        (["x-1.png", "x1.png"], "x1.png and x-1.png look like negative numbers"),
        (["x=-0.5.png", "x=-0.6.png"], "look like negative numbers; try frame_regex='(?P<frame>-?"),
        (  # zones differ on the day that clocks change
            ["2020-03-29T01:55:00+0100.png", "2020-03-29T03:00:00+0200.png"],
            "T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:?[0-9]{2}))' and "
            "time_format='%Y-%m-%dT%H:%M:%S%z'",
        ),
        (["2020-01-31.png", "2020-02-01.png"], "time_format='%Y-%m-%d'"),
        (["r_2020_01_01_23_55.png", "r_2020_01_02_00_00.png"], "time_format='%Y_%m_%d_%H_%M'"),
        (["b.png", "a.png", "1.png"], "a.png and b.png have no number in their name; expected one"),
    ],
)
def test_more_doubtful_names(tmp_path: Path, names: list[str], message: str) -> None:
    """Signs, zones and dates are not taken for text before a number."""
    with pytest.raises(SourceError, match=re.escape(message)):
        list_frames(touch(tmp_path, *names))


@pytest.mark.parametrize(
    ("pattern", "times", "planes"),
    [
        ("img_t{:03d}_c{}", 12, 2),
        ("img_t{:03d}_z{:02d}", 6, 3),
        ("t{}_z{}", 2, 40),
        ("W0001F0001T{:04d}Z01C{}", 8, 2),
        ("exp_t{}_w{}", 3, 4),
    ],
)
def test_channels_are_not_taken_for_time(
    tmp_path: Path, pattern: str, times: int, planes: int
) -> None:
    """They are refused; by the suggested expression each channel or plane is a clip."""
    grid = [(time, plane) for time in range(times) for plane in range(planes)]
    source = touch(tmp_path / "a1", *(f"{pattern.format(*place)}.png" for place in grid))
    with pytest.raises(SourceError, match="the last number may be a channel or plane") as caught:
        list_frames(tmp_path)
    suggested = re.findall(r"frame_regex='([^']*)'", str(caught.value))
    by_plane = listed(tmp_path, regex=suggested[0])
    assert [numbers for _, numbers in by_plane.values()] == [list(range(times))] * planes
    assert len(listed(source, regex=suggested[1])) == times


@given(
    st.lists(st.sampled_from(["cam", "shot_", "walk-", "s", "view."]), max_size=2, unique=True),
    st.integers(1, 4),
    st.integers(20, 40),
    st.sampled_from(["_", "f", "_frame", "-img-", "t"]),
)
def test_long_streams_are_no_channels(
    words: list[str], clips: int, frames: int, before: str
) -> None:
    """A few long streams stay clips, whatever numbers stand before their frames'."""
    places = ["".join(f"{word}{clip}" for word in words) for clip in range(clips)]
    names = [f"{place}{before}{n}.png" for place in places for n in range(frames)]
    found = streams_by_last_number(sorted(set(names)), str)
    assert [stream.numbers.tolist() for stream in found] == [list(range(frames))] * len(set(places))


def test_a_name_in_two_forms(tmp_path: Path) -> None:
    """Accents composed or not are the same: in streams, clips and patterns."""
    composed, apart = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    source = touch(tmp_path, f"{apart}/{composed}_1.png", f"{apart}/{apart}_2.png")
    for form in (composed, apart):
        assert listed(source, include=(f"{form}/*",))[composed][1] == [1, 2]
        assert listed(source, regex=f"{form}_(?P<frame>[0-9])")[composed][1] == [1, 2]
    touch(source / apart, f"{apart}_1.png")
    with pytest.raises(SourceError, match=r"\(its accents composed otherwise\) both have frame n"):
        list_frames(source)
    touch(tmp_path / "two", f"{composed}/1.png", f"{apart}/2.png")
    if len(list((tmp_path / "two").iterdir())) == 2:  # not where the system composes names
        with pytest.raises(SourceError, match=r"accents as characters of their own\) "):
            list_frames(tmp_path / "two")


def test_what_is_no_frame(tmp_path: Path) -> None:
    """Folders that systems and tools hide, pipes and sockets are counted, not opened."""
    hidden = [".git", ".ipynb_checkpoints", "@eaDir", "__MACOSX", ".Trash"]
    source = touch(tmp_path / "s", "1.png", "2.png", *(f"{name}/1.png" for name in hidden))
    os.mkfifo(source / "3.png")
    (source / "4.png").symlink_to(source / "3.png")
    listing = list_frames(source)
    assert [clip.file_names for clip in listing.clips] == [["1.png", "2.png"]]
    assert {reason: entry.count for reason, entry in listing.skipped.items()} == {
        "hidden": 5,
        "a pipe, socket or device": 2,
    }
    with pytest.raises(SourceError, match=r"3\.png is a pipe, socket or device; expected a folder"):
        list_frames(source / "3.png")


def test_a_linked_zarr_store_is_a_clip(tmp_path: Path) -> None:
    """Like any other linked file."""
    touch(tmp_path / "elsewhere.zarr", "zarr.json")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.zarr").symlink_to(tmp_path / "elsewhere.zarr")
    assert [clip.name for clip in list_frames(tmp_path / "s").clips] == ["a"]


def test_the_reason_is_in_the_file(tmp_path: Path) -> None:
    """A file without a number that cannot be read says why; other folders are counted."""
    source = touch(tmp_path, "a/movie.tif", "b/x.png", "b/y.png")

    def probe(path: str) -> bool:
        if path.endswith(".tif"):
            raise SourceError(f"{path} is damaged")
        return False

    with pytest.raises(
        SourceError, match=r"movie\.tif is damaged \(and 1 more folders are refused"
    ):
        list_frames(source, probe=probe)


@pytest.mark.parametrize(
    ("rule", "unit", "message"),
    [
        ({"step": "5min"}, None, "step='5min' does not fit; expected a number, for names are not"),
        ({"step_tolerance": "2ms"}, None, "step_tolerance='2ms' does not fit; expected a number"),
        ({"step_tolerance": "2ms"}, "s", "expected a time such as 5min, in whole s"),
        ({"step": 300}, "s", "step=300 does not fit; expected a time such as 5min, in whole s"),
    ],
)
def test_steps_that_do_not_fit(rule: dict[str, object], unit: str | None, message: str) -> None:
    """Steps of numbers are numbers, those of times are times no finer than they are."""
    with pytest.raises(SourceError, match=re.escape(message)):
        stated_steps(ListRule(**rule), unit)


def test_numbers_too_large_for_the_decimals_of_others(tmp_path: Path) -> None:
    """Bringing them to common places must not wrap around."""
    source = touch(tmp_path, "4000000000000000000.png", "1.5.png")
    with pytest.raises(SourceError, match="numbers too large to have 1 decimal places"):
        listed(source, regex="(?P<frame>[0-9]+(?:[.][0-9])?)")
