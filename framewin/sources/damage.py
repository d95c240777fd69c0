"""Damaged files: what is damage and what is not, and whether it stops or leaves a gap."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from framewin.errors import (
    FrameFormatError,
    FramewinError,
    MissingDependencyError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
    one_line,
)

# The others are also what decoders and libraries say of damaged bytes.
_SYSTEM_ERRORS = errno.errorcode.keys() - {
    errno.EDOM, errno.EILSEQ, errno.EINVAL, errno.ENOSYS, errno.EOVERFLOW, errno.EPERM,
    errno.ERANGE, errno.ESPIPE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damaged:
    """A frame, or a whole file of frames, that was left out because it is damaged."""

    file: str
    """Path of the file."""
    clip: str
    number: int | None
    """Frame number; None where a clip, or its end, is lost."""
    reason: str


def broken(problem: str) -> SourceError:
    """The error for a file whose content is wrong."""
    return SourceError(f"{problem}; repair or remove it")


def cut_short(problem: str) -> SourceError:
    """The error for a file of which a part is missing."""
    return SourceError(f"{problem}; copy it again or remove it")


@contextmanager
def as_damage(problem: str, error: Callable[[str], SourceError] = broken) -> Iterator[None]:
    """Make one line of SourceError of what a decoder raises, which is nearly anything."""
    try:
        yield
    except FramewinError:
        raise
    except Exception as exc:
        raise error(f"{problem} ({one_line(exc)})") from exc


def reason_for_gap(path: str, exc: SourceError | OSError, *, gaps: bool) -> str:
    """What is recorded of damage that leaves a gap.

    Raises:
        FramewinError: It is to stop instead, or is no damage.
    """
    error = unreadable(path, exc) if isinstance(exc, OSError) else exc
    stop = no_damage(path, error)
    if stop is not None or not gaps:
        raise stop or error
    return str(error)


def unreadable(path: str, exc: BaseException) -> SourceError:
    """The error for a source file that the system does not let us read."""
    kind = SourceChangedError if isinstance(exc, FileNotFoundError) else SourceAccessError
    reason = "there is too little memory" if isinstance(exc, MemoryError) else str(exc)
    return kind(f"{path} cannot be read: {getattr(exc, 'strerror', None) or reason}")


def no_damage(path: str, exc: SourceError) -> FramewinError | None:
    """The error for a file that may be right, such as one on a disk that fails; None of damage.

    A frame of another format is no damage: leaving it out would be a decision of the user's.
    """
    if isinstance(exc, FrameFormatError | SourceAccessError | SourceChangedError):
        return exc
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, MissingDependencyError):
            return cause
        known = getattr(cause, "errno", None) in _SYSTEM_ERRORS
        # Of numcodecs, for a codec of Zarr that is not installed.
        known |= type(cause).__name__ == "UnknownCodecError"
        if known or isinstance(cause, MemoryError | ImportError):
            return unreadable(path, cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None
