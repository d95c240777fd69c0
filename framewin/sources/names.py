"""From file names to streams of frames with numbers or time stamps; pure, nothing is opened.

By default the last run of digits in a name is the frame's number, and the text before and after
it names the stream. Where that leaves the order in doubt, the error lists files and a
`frame_regex` to try.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from unicodedata import normalize

import numpy as np

from framewin.errors import SourceError
from framewin.schema import MICROSECONDS, Int64Array

# ASCII digits only: \d takes superscripts and other scripts' digits, which int() may refuse.
DIGIT_CHARACTERS = "0123456789"

_AFTER_LAST_DIGIT = re.compile(r"[^0-9]*\Z")
_DIGITS = re.compile(r"([0-9]+)")
_WORD = re.compile(r"([A-Za-z]*)[-_. ]*\Z")
_DECIMAL = re.compile(r"([+-]?[0-9]+)(?:[.,]([0-9]+))?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]+)")
_BEFORE_FRACTION = re.compile(r"[0-9]+[.,]\Z")
_SEPARATORS = "-_. "
_MINUSES = ("-", "\N{MINUS SIGN}")
_BEFORE_SIGN = ("", *"-_. =,([")
_TIME_WORDS = frozenset(
    ("t", "tp", "time", "timepoint", "f", "fr", "frame", "img", "image", "im", "step")
)
_PLANE_WORDS = frozenset(
    ("c", "ch", "chan", "channel", "wv", "z", "zs", "plane", "slice", "layer", "band")
)
_WAVELENGTH = "w"
"""Beside a word for time; else it may be a way, week or window."""
_INT64_DIGITS = 19
_MOST = 2**62 - 1
"""Differences of such numbers are int64, too."""
_LONG_STREAM = 10
_SAMPLE = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SENSIBLE_YEARS = range(1900, 2101)

_ZONE = "(?:Z|[+-][0-9]{2}:?[0-9]{2})"
_DATES = (("[0-9]{4}-[0-9]{2}-[0-9]{2}", "%Y-%m-%d"), ("[0-9]{4}_[0-9]{2}_[0-9]{2}", "%Y_%m_%d"))
_DASHED = tuple(
    (f"{date}{s}[0-9]{{2}}{t}[0-9]{{2}}", f"{form}{s}%H{t}%M", t)
    for date, form in _DATES
    for s in "-_T "
    for t in ("-", ":", "_", "")
)
_SECOND_STAMPS = (
    ("[0-9]{14}", "%Y%m%d%H%M%S"),
    *((f"[0-9]{{8}}{s}[0-9]{{6}}", f"%Y%m%d{s}%H%M%S") for s in "-_T"),
    *((f"{minutes}{t}[0-9]{{2}}", f"{form}{t}%S") for minutes, form, t in _DASHED),
)
_FRACTIONS = tuple(
    (f"{pattern}[{p}][0-9]{{1,6}}", f"{form}{p}%f")
    for pattern, form in _SECOND_STAMPS
    for p in ".,"
)
_TIMES = (
    *_FRACTIONS,
    *_SECOND_STAMPS,
    ("[0-9]{12}", "%Y%m%d%H%M"),
    *((f"[0-9]{{8}}{s}[0-9]{{4}}", f"%Y%m%d{s}%H%M") for s in "-_T"),
    *((minutes, form) for minutes, form, _ in _DASHED),
)
_STAMPS = (
    *((f"{pattern}{_ZONE}", f"{form}%z") for pattern, form in _TIMES),
    *_TIMES,
    *_DATES,
)
"""Pattern and format of what is surely a time stamp."""
_MAYBE_STAMPS = (*_STAMPS, ("[0-9]{9}", "%y%j%H%M"), ("[0-9]{8}", "%Y%m%d"))
"""Those that are only worth a suggestion, too."""


@dataclass(frozen=True, slots=True)
class NameRule:
    """How names are read."""

    frame_regex: str | None = None
    """Regular expression with the group `frame` or `time`, and perhaps `clip`."""
    time_format: str | None = None
    """strptime format of the group `time`; ISO 8601 by default."""

    def __post_init__(self) -> None:
        if self.frame_regex is None:
            if self.time_format is not None:
                raise ValueError("time_format needs a frame_regex with a group (?P<time>...)")
            return
        try:
            groups = set(re.compile(self.frame_regex).groupindex)
        except re.error as exc:
            raise ValueError(f"frame_regex {self.frame_regex!r} is not valid: {exc}") from None
        if len(groups & {"frame", "time"}) != 1 or groups - {"clip", "frame", "time"}:
            raise ValueError(
                f"frame_regex {self.frame_regex!r} has the groups {', '.join(sorted(groups))}; "
                "expected (?P<frame>...) or (?P<time>...), and perhaps (?P<clip>...)"
            )
        if self.time_format is not None and "time" not in groups:
            raise ValueError("time_format needs a frame_regex with a group (?P<time>...)")

    @property
    def names_clips(self) -> bool:
        """Whether the regular expression says to which clip a frame belongs."""
        return self.frame_regex is not None and "clip" in _compiled(self.frame_regex).groupindex

    @property
    def reads_times(self) -> bool:
        """Whether frames are numbered by time stamps."""
        return self.frame_regex is not None and "time" in _compiled(self.frame_regex).groupindex


@dataclass(slots=True, eq=False)
class Stream:
    """Frames that follow one another."""

    name: str
    """"" where it is all there is."""
    file_names: list[str]
    """In the order of their numbers."""
    numbers: Int64Array
    """Increasing. Time stamps are microseconds since 1970, until a unit has been chosen."""
    places: int = 0
    """Decimal places that the numbers have been multiplied away."""


@dataclass(slots=True)
class _Group:
    """A stream while it is being gathered."""

    names: list[str] = field(default_factory=list)
    values: array[int] = field(default_factory=lambda: array("q"))
    places: bytearray = field(default_factory=bytearray)
    widths: set[int] = field(default_factory=set)


def streams_by_last_number(file_names: Sequence[str], show: Callable[[str], str]) -> list[Stream]:
    """The streams of one folder, by the last number in each name.

    Args:
        file_names: Names with suffixes, in any order.
        show: From a name to what errors call the file.

    Raises:
        SourceError: No number, two files of one number, or an order that is in doubt.
    """
    unnumbered = without_number(file_names)
    if unnumbered:
        several = len(unnumbered) > 1
        lack = "have no number in their name" if several else "has no number in its name"
        raise SourceError(
            f"{_some(unnumbered, show)} {lack}; expected one that gives its place in time, as in "
            "frame_0001.png; leave out by exclude= what is no frame, or say where the number is by "
            "frame_regex='(?P<frame>[0-9]+)'"
        )
    groups: dict[tuple[str, str], _Group] = {}
    for file_name in file_names:
        before, digits, after = last_number(_stem(file_name))
        group = groups.setdefault((before, after), _Group())
        group.names.append(file_name)
        group.values.append(_int64(digits, file_name, show))
        group.widths.add(len(digits))
    _check_streams(groups, file_names, show)
    names = _stream_names(list(groups))
    streams = [
        _ordered(name, group.names, np.frombuffer(group.values, np.int64), show)
        for name, group in zip(names, groups.values(), strict=True)
    ]
    return sorted(streams, key=lambda stream: natural_key(stream.name))


def streams_by_regex(
    file_names: Iterable[str], prefix: str, rule: NameRule, show: Callable[[str], str]
) -> list[Stream]:
    """The streams that a regular expression finds in paths below the source.

    Args:
        file_names: Names, or paths below the source, in any order.
        prefix: What stands before each in its path below the source.
        rule: Has the regular expression.
        show: From a name to what errors call the file.

    Raises:
        SourceError: A path that it does not match, or two of one clip with one number.
    """
    assert rule.frame_regex is not None
    pattern = _compiled(normalize("NFC", rule.frame_regex))
    groups: dict[str, _Group] = {}
    others = []
    for file_name in file_names:
        match = pattern.search(normalize("NFC", f"{prefix}{file_name}"))
        if match is None:
            others.append(file_name)
            continue
        group = groups.setdefault(match["clip"] or "" if rule.names_clips else "", _Group())
        value, decimals = _value(match, rule, file_name, show)
        group.names.append(file_name)
        group.values.append(value)
        group.places.append(decimals)
    if others:
        raise SourceError(
            f"{_some(others, show)}: no match of frame_regex={rule.frame_regex!r}; change it, or "
            "leave out by exclude= what is no frame"
        )
    streams = []
    for name, group in groups.items():
        places = np.frombuffer(group.places, np.uint8)
        most = int(places.max())
        values = _scaled(np.frombuffer(group.values, np.int64), most - places.astype(np.int64))
        what = "the time, in microseconds," if rule.reads_times else "frame number"
        stream = _ordered(name, group.names, values, show, what)
        stream.places = most
        streams.append(stream)
    return sorted(streams, key=lambda stream: natural_key(stream.name))


def with_common_places(streams: Sequence[Stream]) -> None:
    """Bring decimal frame numbers of all streams to the same number of places."""
    most = max((stream.places for stream in streams), default=0)
    for stream in streams:
        stream.numbers = _scaled(stream.numbers, most - stream.places)
        stream.places = most


def _scaled(numbers: Int64Array, places: Int64Array | int) -> Int64Array:
    """Numbers with more decimal places."""
    if (np.abs(numbers.astype(np.float64)) * 10.0**places > _MOST).any():
        raise SourceError(
            f"there are frame numbers too large to have {np.max(places)} decimal places, which "
            "others have; convert them into stores of their own"
        )
    return np.asarray(numbers * 10**places, np.int64)


def parse_step(step: int | str, name: str = "step") -> tuple[int, bool]:
    """A step as a number of frames, or as microseconds and True; `name` is for errors.

    >>> parse_step("5min"), parse_step("2"), parse_step(3)
    ((300000000, True), (2, False), (3, False))
    """
    text = str(step).strip()
    duration = _DURATION.fullmatch(text)
    if text.isascii() and text.isdigit():
        value, is_duration = int(text), False
    elif duration and duration[2] in MICROSECONDS:
        value, is_duration = round(float(duration[1]) * MICROSECONDS[duration[2]]), True
    else:
        units = ", ".join(MICROSECONDS)
        raise ValueError(
            f"{name} must be a number, or a time in {units} such as 5min; got {step!r}"
        )
    if value < 1:
        raise ValueError(f"{name} must be above 0, got {step!r}")
    return value, is_duration


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts cam2 before cam10.

    >>> sorted(["cam10", "cam2", "cam"], key=natural_key)
    ['cam', 'cam2', 'cam10']
    """
    pieces = _DIGITS.split(text)
    return [(0, int(p), p) if p[:1] in DIGIT_CHARACTERS else (1, 0, p) for p in pieces if p]


def last_number(stem: str) -> tuple[str, str, str]:
    """A name without suffix as (text before its last number, the digits, text after them).

    >>> last_number("cam2_f07"), last_number("t0012.depth")
    (('cam2_f', '07', ''), ('t', '0012', '.depth'))
    """
    with_number = stem if stem[-1:] in DIGIT_CHARACTERS else _AFTER_LAST_DIGIT.sub("", stem)
    before = with_number.rstrip(DIGIT_CHARACTERS)
    return before, with_number[len(before) :], stem[len(with_number) :]


def without_number(file_names: Iterable[str]) -> list[str]:
    """The names that hold no digit before their suffix."""
    return [name for name in file_names if not _DIGITS.search(name, 0, _stem_length(name))]


def _stem(file_name: str) -> str:
    """A name without suffix, its accents composed: file systems differ in that."""
    stem = file_name[: _stem_length(file_name)]
    return stem if stem.isascii() else normalize("NFC", stem)


def _stem_length(file_name: str) -> int:
    dot = file_name.rfind(".")
    # Digits behind the last dot are no suffix, but may be the number.
    named = dot > 0 and not file_name[dot + 1 :].isdigit()
    return dot if named else len(file_name)


def _check_streams(
    groups: dict[tuple[str, str], _Group], file_names: Sequence[str], show: Callable[[str], str]
) -> None:
    """Refuse what only looks like frames of clean streams."""
    if _stamp(file_names, _STAMPS, last=True) is not None:
        raise SourceError(
            f"{_some(file_names, show)} seem to carry time stamps, which do not count frames; "
            f"try {_suggestion(file_names)}, or for plain numbers "
            "frame_regex='(?P<frame>[0-9]+)[^0-9]*$'"
        )
    # What is named must not depend on the order in which a file system lists files.
    groups = dict(sorted(groups.items()))
    _check_signs(groups, show)
    _check_decimals(groups, show)
    _check_planes(groups, show)
    lengths = [len(group.names) for group in groups.values()]
    lonely = sum(length == 1 for length in lengths)
    many, long = len(groups) > 2, max(lengths) >= _LONG_STREAM
    if (many and lonely > len(groups) / 2) or (lonely and long) or _counted_before(groups):
        few = [group.names[0] for group in groups.values() if len(group.names) == 1]
        most = max(groups.values(), key=lambda group: len(group.names)).names
        like = file_names if len(most) == 1 else most
        raise SourceError(
            f"{_some([min(most, key=natural_key), *few], show)} differ in more than their last "
            "number, and streams of a single frame are in doubt; try "
            f"{_suggestion(like)}, or leave some out by exclude=, or name clips by (?P<clip>...)"
        )


def _counted_before(groups: dict[tuple[str, str], _Group]) -> bool:
    """Whether the last number never differs, but one before it, as in 1_of_2 and 2_of_2."""
    skeletons = {(_DIGITS.sub("", before), after) for before, after in groups}
    numbers = {number for group in groups.values() for number in group.values[:2]}
    return len(skeletons) == 1 < len(groups) and len(numbers) == 1


def _check_decimals(groups: dict[tuple[str, str], _Group], show: Callable[[str], str]) -> None:
    whole_parts: dict[tuple[str, str], list[list[str]]] = {}
    for (before, after), group in groups.items():
        if not _BEFORE_FRACTION.search(before):
            continue
        key = (_BEFORE_FRACTION.sub("", before), after)
        whole_parts.setdefault(key, []).append(group.names)
        if len(group.widths) > 1:
            longest, shortest = (pick(sorted(group.names), key=len) for pick in (max, min))
            raise _decimals([longest, shortest], "of different length, ", show)
    for found in whole_parts.values():
        if len(found) > 1:
            raise _decimals([min(names, key=natural_key) for names in found], "", show)


def _check_signs(groups: dict[tuple[str, str], _Group], show: Callable[[str], str]) -> None:
    """Refuse names that may be negative numbers: those would come in reverse."""
    for (before, after), group in groups.items():
        whole = _BEFORE_FRACTION.sub("", before)
        text = whole[:-1]
        beside = groups.get((before.replace(whole, text, 1), after))
        if whole[-1:] not in _MINUSES:
            continue
        # Who counts from 0, or pads numbers, has put the dash between words.
        zeros = before == whole and any(
            _stem(name).startswith(f"{before}0") for name in group.names
        )
        if beside is None and (zeros or text[-1:] not in _BEFORE_SIGN):
            continue
        first, *rest = sorted(group.names, key=natural_key)
        second = [min(beside.names, key=natural_key)] if beside else rest[:1]
        raise SourceError(
            f"{_some([first, *second], show)} look like negative numbers; try "
            "frame_regex='(?P<frame>-?[0-9]+(?:[.,][0-9]+)?)[^0-9]*$', or, where the dash is no "
            "sign, frame_regex='(?P<frame>[0-9]+)[^0-9]*$'"
        )


def _check_planes(groups: dict[tuple[str, str], _Group], show: Callable[[str], str]) -> None:
    """Refuse names in which a number before the last one seems to be the time: channels would be
    taken for neighbours in time."""
    alike: dict[tuple[tuple[str, ...], str], list[tuple[list[str], _Group]]] = {}
    for (before, after), group in groups.items():
        pieces = _DIGITS.split(before)
        alike.setdefault((tuple(pieces[::2]), after), []).append((pieces, group))
    for (texts, _), found in alike.items():
        *words, last = [(_WORD.search(text) or [""])[1].lower() for text in texts]
        values = [{pieces[2 * i + 1] for pieces, _ in found} for i in range(len(words))]
        varying = [i for i, different in enumerate(values) if len(different) > 1]
        if not varying or last in _TIME_WORDS:
            continue
        numbers = {number for _, group in found for number in group.values[: len(found)]}
        timed = [i for i in varying if words[i] in _TIME_WORDS]
        beside_time = timed and (last == _WAVELENGTH or len(numbers) < len(found))
        if len(numbers) > 1 and (last in _PLANE_WORDS or beside_time):
            place = max(timed or varying, key=lambda i: len(values[i]))
            names = [name for _, group in found for name in group.names]
            begin = "[0-9]+".join(re.escape(text) for text in texts[: place + 1])
            raise SourceError(
                f"{_some(names, show)}: the last number may be a channel or plane, not the time; "
                f"try frame_regex='(?:^|/){begin}(?P<frame>[0-9]+)[-_. ]*(?P<clip>[^/]+)[.]', or, "
                "where it is the time, frame_regex='(?P<clip>[^/]*[^0-9])(?P<frame>[0-9]+)[^0-9]*$'"
            )


def _decimals(names: Sequence[str], how: str, show: Callable[[str], str]) -> SourceError:
    return SourceError(
        f"{_some(names, show)} look like decimal numbers {how}whose order is in doubt; try "
        "frame_regex='(?P<frame>[0-9]+(?:[.,][0-9]+)?)'"
    )


def _some(names: Sequence[str], show: Callable[[str], str]) -> str:
    """The first names in natural order, the first of them in full."""
    unique = sorted(set(names), key=natural_key)
    first, *rest = unique[:3]
    more = f" and {len(unique) - 3} more" if len(unique) > 3 else ""
    return " and ".join([show(first), *rest]) + more


def _suggestion(file_names: Sequence[str]) -> str:
    """Options that would read names like these."""
    stamp = _stamp(file_names, _MAYBE_STAMPS)
    if stamp is not None:
        pattern, time_format = stamp
        return f"frame_regex='(?P<time>{pattern})' and time_format='{time_format}'"
    return f"frame_regex='{re.escape(_before_counter(file_names))}(?P<frame>[0-9]+)'"


def _before_counter(file_names: Sequence[str]) -> str:
    """The text before the only number that differs; before the last one if that is in doubt."""
    split = [_DIGITS.split(name) for name in file_names]
    if len({tuple(pieces[::2]) for pieces in split}) == 1:
        numbers = range(1, len(split[0]), 2)
        varying = [i for i in numbers if len({pieces[i] for pieces in split}) > 1]
        if len(varying) == 1:
            return "".join(split[0][: varying[0]])
    first = min(file_names, key=natural_key)
    return last_number(first[: first.rindex(".")])[0]


def _stamp(
    file_names: Sequence[str], stamps: Iterable[tuple[str, str]], *, last: bool = False
) -> tuple[str, str] | None:
    """Pattern and format of a time stamp that all names carry; as their last number, if asked."""
    sample = file_names[:: max(1, len(file_names) // _SAMPLE)]
    behind = r"[^0-9]*\.[^.]*\Z" if last else ""
    for pattern, time_format in stamps:
        bounded = _compiled(f"(?<![0-9])({pattern})(?![0-9]){behind}")
        if all(_parses(bounded.search(name), time_format) for name in sample):
            return pattern, time_format
    return None


def _parses(match: re.Match[str] | None, time_format: str) -> bool:
    try:
        return match is not None and (
            datetime.strptime(match[1], time_format).year in _SENSIBLE_YEARS
        )
    except ValueError:
        return False


def _stream_names(keys: Sequence[tuple[str, str]]) -> list[str]:
    """What tells streams apart, without separators at its ends.

    >>> _stream_names([("f-", ".depth"), ("f-", ".color")]), _stream_names([("f", "")])
    (['depth', 'color'], [''])
    >>> _stream_names([("cam2_f", ""), ("cam10_f", "")]), _stream_names([("a", ""), ("a_", "")])
    (['cam2_f', 'cam10_f'], ['a', 'a_'])
    """
    if len(keys) == 1:
        return [""]
    befores, afters = {before for before, _ in keys}, {after for _, after in keys}
    if len(befores) == 1:
        names = [after.strip(_SEPARATORS) for _, after in keys]
    elif len(afters) == 1:
        names = [before.strip(_SEPARATORS) for before, _ in keys]
    else:
        names = ["_".join(part.strip(_SEPARATORS) for part in key if part) for key in keys]
    names = [name or "frames" for name in names]
    if len(set(names)) == len(names):
        return names
    # Separators are all that tells these apart.
    raw = [f"{before}{after}" for before, after in keys]
    return [name or "frames" for name in raw]


def _value(
    match: re.Match[str], rule: NameRule, path: str, show: Callable[[str], str]
) -> tuple[int, int]:
    """The number that a name gives, and how many decimal places it has."""
    if rule.reads_times:
        return _microseconds(match["time"], rule.time_format, path, show), 0
    text = match["frame"] or ""
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        raise SourceError(
            f"{show(path)} has the frame {text!r}; expected a number, change frame_regex="
        )
    digits, fraction = decimal[1], decimal[2] or ""
    return _int64(digits + fraction, path, show), len(fraction)


def _microseconds(
    text: str | None, time_format: str | None, path: str, show: Callable[[str], str]
) -> int:
    try:
        if time_format is None:
            stamp = datetime.fromisoformat(text or "")
        else:
            stamp = datetime.strptime(text or "", time_format)
    except ValueError:
        expected = f"time_format={time_format!r}" if time_format else "ISO 8601"
        raise SourceError(
            f"{show(path)} has the time {text!r}; expected {expected}, change frame_regex= or "
            "time_format="
        ) from None
    stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return (stamp - _EPOCH) // _MICROSECOND


def _int64(digits: str, name: str, show: Callable[[str], str]) -> int:
    if len(digits) >= _INT64_DIGITS and abs(int(digits)) > _MOST:
        raise SourceError(
            f"{show(name)} has a frame number above {_MOST:,}; say which digits count by "
            "frame_regex='(?P<frame>[0-9]{1,18})'"
        )
    return int(digits)


def _ordered(
    name: str,
    file_names: list[str],
    numbers: Int64Array,
    show: Callable[[str], str],
    what: str = "frame number",
) -> Stream:
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    ordered = [file_names[i] for i in order]
    for tie in np.flatnonzero(np.diff(numbers) == 0)[:1]:
        first, second = sorted(ordered[tie : tie + 2])
        alike = normalize("NFC", first) == normalize("NFC", second)
        raise SourceError(
            f"{show(first)} and {second}{' (its accents composed otherwise)' * alike} both have "
            f"{what} {numbers[tie]}; rename or remove one, leave one out by exclude=, or name "
            "their clips by frame_regex='(?P<clip>...)(?P<frame>[0-9]+)'"
        )
    return Stream(name, ordered, numbers)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
