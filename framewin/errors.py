"""The errors that framewin raises on purpose; each message is one line that a user can act on.

    FramewinError
    |-- SourceError               a frame or folder that cannot be converted as it is
    |   |-- FrameFormatError      a frame of another size, channel count or dtype
    |   |-- SourceAccessError     a file that the system does not let us read
    |   `-- SourceChangedError    a file that changed while it was converted
    |-- StoreError                a store that cannot be read, or must not be written
    |   |-- FormatVersionError    a store of a newer framewin
    |   |-- NotOursError          nothing that framewin wrote
    |   |-- NotWholeError         no record at the end of a file, or a damaged one
    |   |-- MissingObjectError    no object of that name in an object store
    |   |-- DeniedObjectError     an object that may not be read, or is not there
    |   |-- AppearedError         another process made the same store meanwhile
    |   `-- InUseError            another process is making the same store
    |       `-- HeldElsewhereError  perhaps: it is on another machine, if it still runs
    |-- TrainingError             training that cannot start, or went wrong
    `-- MissingDependencyError    an optional package is not installed (also an ImportError)

A bad argument is a plain ValueError, TypeError or IndexError.
"""

from __future__ import annotations

import re

# Control characters, ends of lines, changes of direction, and bytes that are no text.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(text: str) -> str:
    r"""Text in one line that cannot command a terminal, whatever names of files and clips hold.

    >>> shown("a\nstore  \x1b[2J")
    'a\\nstore  \\x1b[2J'
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(exc: BaseException, *, kind: bool = False) -> str:
    """What an exception says, which may be nothing or many lines; with its kind if that is asked.

    >>> one_line(KeyError("name"), kind=True)
    "KeyError: 'name'"
    """
    text = str(exc) if kind else str(getattr(exc, "strerror", None) or exc)
    lines, name = text.splitlines()[:1], type(exc).__name__
    return ": ".join([name, *lines]) if kind else (lines or [name])[0]


class FramewinError(Exception):
    """Base of all errors that framewin raises on purpose; one line each."""

    def __str__(self) -> str:
        return shown(super().__str__())


class SourceError(FramewinError):
    """A frame, or a folder of frames, cannot be converted as it is."""


class FrameFormatError(SourceError):
    """A frame differs from the first one in height, width, channels or dtype, or from the options.

    Such a frame is not damaged, and is never left out by itself.
    """


class SourceAccessError(SourceError):
    """The system does not let us read a file of the source; its bytes may be right."""


class SourceChangedError(SourceError):
    """A file of the source changed, or vanished, after it was listed."""


class StoreError(FramewinError):
    """A store cannot be read, or must not be written."""


class NotOursError(StoreError):
    """What is there was not written by framewin; it may hold an array all the same."""


class NotWholeError(StoreError):
    """A file has no record of a store at its end, or a damaged one."""


class MissingObjectError(StoreError):
    """No object of that name."""


class DeniedObjectError(StoreError):
    """An object that may not be read; some services say so of one that is not there."""


class InUseError(StoreError):
    """Another process is building the same store."""


class HeldElsewhereError(InUseError):
    """A process that cannot be looked at has, or had, the lock: it may be on another machine."""


class AppearedError(StoreError):
    """Another process made the same store."""


class FormatVersionError(StoreError):
    """The store was written by a newer framewin in a layout this one does not know."""


class TrainingError(FramewinError):
    """Training cannot start with these settings on this store, or it went wrong."""


class MissingDependencyError(FramewinError, ImportError):
    """An optional package is not installed; the message has the install command."""
