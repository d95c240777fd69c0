"""The lock of a folder, which ends with the process that holds it, however that ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framewin.errors import HeldElsewhereError, InUseError

LOCK = "framewin.lock"
"""Names the process, also for other machines."""

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# What file systems answer that lack links, locks or the syncing of folders: exFAT, NFS, FUSE.
LACKING = (
    *(errno.EPERM, errno.EINVAL, errno.EBADF, errno.EISDIR, errno.EMLINK),
    *(errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP),
)

_locks: set[int] = set()
"""Descriptors of the folders that this process has locked."""


@contextmanager
def locked(partial: Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with this process, however that ends.

    Other processes of this machine are kept out by the system, where the file system can do that;
    those of other machines by a file that names this process.

    Raises:
        InUseError: Another one has it.
    """
    try:
        lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise in_use(partial) from None
    _locks.add(lock)
    held = False
    try:
        alone = _lock(lock, partial)
        _hold(partial, alone=alone)
        held = True
        yield
    finally:
        # A process forked from this one has let go of it.
        if lock in _locks:
            _locks.remove(lock)
            if held and _holder(partial / LOCK) == this_process():
                (partial / LOCK).unlink(missing_ok=True)
            os.close(lock)


def _let_go() -> None:
    """In a forked process, which would hold the lock when the one that took it has ended."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_let_go)


def _lock(descriptor: int, partial: Path) -> bool:
    """Take the system's lock of a folder; False where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except BlockingIOError:
        raise in_use(partial) from None
    except OSError as exc:
        if exc.errno not in LACKING:
            raise
        alone = False
        print(
            f"framewin: {partial} is on a file system without locks; {LOCK} in it keeps other "
            "processes out",
            file=sys.stderr,
        )
    # The other conversion may have ended, and removed its folder, while this one opened it.
    if not _is_at(descriptor, partial):
        raise in_use(partial)
    return alone


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether what is open still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _hold(partial: Path, *, alone: bool) -> None:
    """Make the file that names this process, unless a process that may live has made it."""
    path = partial / LOCK
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if os.path.lexists(path):
        _put_aside(partial, alone=alone)
    try:
        descriptor = os.open(path, flags, 0o666)
    except (FileExistsError, FileNotFoundError):
        raise in_use(partial) from None
    try:
        data = json.dumps(this_process()).encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
        # As long as it was empty, another process could take it for one that a kill has left.
        if not _is_at(descriptor, path):
            raise in_use(partial)
    except BaseException:
        if _is_at(descriptor, path):
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _put_aside(partial: Path, *, alone: bool) -> None:
    """Remove the lock file of a process that has ended, but not one made in its place."""
    path, aside = partial / LOCK, partial / f"{LOCK}.{uuid.uuid4().hex}"
    found = _holder(path)
    if not has_ended(found, alone=alone and os.access(path, os.R_OK)):
        raise in_use(partial, clear=True)
    try:
        path.rename(aside)
    except FileNotFoundError:
        raise in_use(partial) from None
    if _holder(aside) != found:
        aside.rename(path)
        raise in_use(partial)
    aside.unlink()


def this_process() -> dict[str, Any]:
    boot, machine = (
        path.read_text().strip() if path.is_file() else "" for path in (_BOOT_ID, _MACHINE_ID)
    )
    return {"pid": os.getpid(), "host": socket.gethostname(), "machine": machine, "boot": boot}


def _holder(lock: Path) -> dict[str, Any]:
    """Who made a lock file; empty if it does not say so."""
    try:
        found = json.loads(lock.read_text())
    except (OSError, ValueError):
        return {}
    named = isinstance(found, dict) and found.keys() == this_process().keys()
    return found if named and isinstance(found["pid"], int) else {}


def has_ended(holder: dict[str, Any], *, alone: bool) -> bool:
    """Whether the process that made the lock file cannot be at work any more.

    Args:
        holder: That process; empty where a kill or a full disk kept it from saying so.
        alone: Whether the system keeps other processes of this machine out.
    """
    if not holder:
        return alone
    this = this_process()
    same_boot = holder.get("boot") == this["boot"]
    same_machine = all(holder.get(key) == this[key] for key in ("host", "machine"))
    if not same_boot:
        return same_machine
    # Containers of one machine have names of their own, but one boot.
    if alone and (this["boot"] or same_machine):
        return True
    return same_machine and not _is_alive(holder["pid"])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def in_use(partial: Path, *, clear: bool = False) -> InUseError:
    holder = _holder(partial / LOCK)
    name = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    message = f"{partial} is in use by {name}; wait for it or choose another name"
    if clear:
        return HeldElsewhereError(f"{message}; if it has ended, remove {partial / LOCK}")
    return InUseError(message)
