"""From names to clips and numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin.errors import SourceError
from framewin.sources.listing import list_frames, natural_key


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
        "not .png": 2,
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


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["f_1.png", "f_01.png"], "f_01.png and f_1.png both have frame number 1; rename or"),
        (["a.png"], "a.png has no number in its name; expected one that gives its place in time"),
        (["²³.png"], "²³.png has no number in its name"),
        (
            ["cam2_f9.png", "cam10_f2.png"],
            "cam2_f9.png and cam10_f2.png differ in more than their last number; put the frames",
        ),
        (
            ["f-0.color.png", "f-0.depth.png"],
            "f-0.color.png and f-0.depth.png differ in more than their last number",
        ),
        (
            ["1.125.png", "1.25.png", "1.5.png"],
            "1.125.png and 1.5.png look like decimal numbers of different length",
        ),
        (["f1234567890123456789.png"], "has a frame number of more than 18 digits"),
        (["notes.txt"], "holds no .png frame (1 other files)"),
    ],
)
def test_doubtful_names_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    """One line with the files, and what to do."""
    with pytest.raises(SourceError, match=re.escape(message)):
        list_frames(touch(tmp_path, *names))


def test_missing_sources(tmp_path: Path) -> None:
    """A file or nothing where a folder is expected."""
    touch(tmp_path, "file.png")
    with pytest.raises(SourceError, match=r"file.png is a file; expected a folder of .png frames"):
        list_frames(tmp_path / "file.png")
    with pytest.raises(SourceError, match=r"none does not exist; expected a folder"):
        list_frames(tmp_path / "none")


def test_a_dead_link_is_named(tmp_path: Path) -> None:
    """A frame that is a link to nothing stops the listing."""
    touch(tmp_path, "0.png")
    (tmp_path / "1.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(SourceError, match=r"1\.png is a link to nothing; remove or repair it"):
        list_frames(tmp_path)
