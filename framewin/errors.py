"""The errors that framewin raises on purpose; each message is one line that a user can act on.

    FramewinError
    |-- SourceError               a frame or folder that cannot be converted as it is
    |   |-- FrameFormatError      a frame of another size, channel count or dtype
    |   |-- SourceAccessError     a file that the system does not let us read
    |   `-- SourceChangedError    a file that changed while it was converted
    |-- StoreError                a store that cannot be read, or must not be written
    |   |-- FormatVersionError    a store of a newer framewin
    |   `-- NotOursError          nothing that framewin wrote
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


class FormatVersionError(StoreError):
    """The store was written by a newer framewin in a layout this one does not know."""


class TrainingError(FramewinError):
    """Training cannot start with these settings on this store, or it went wrong."""


class MissingDependencyError(FramewinError, ImportError):
    """An optional package is not installed; the message has the install command."""
