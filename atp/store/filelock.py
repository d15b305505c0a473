"""File locks, which the kernel frees when the last process that holds one is dead.

An ``flock`` belongs to the open file. Forked children inherit that file, so one lock can stand
for a daemon with all its processes.

Who may read a file may also lock it, and would keep a dead daemon alive. So a lock is its user's
alone, except in a folder in which a group may write: who may remove a lock may also try it.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path

# The name of a folder's own lock.
LOCK = ".lock"


def acquire(path: str | Path) -> int:
    """Create and lock the file; returns the descriptor, which holds the lock until closed.

    Raises BlockingIOError if another process holds the lock.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        mode = _mode(status, os.stat(os.path.dirname(path) or "."))
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _mode(status: os.stat_result, folder: os.stat_result) -> int:
    """Return the permissions of a lock file in this folder."""
    is_shared = folder.st_mode & stat.S_IWGRP and folder.st_gid == status.st_gid
    return 0o660 if is_shared else 0o600


def make_locked_folder(parent: str | Path, prefix: str) -> tuple[Path, int]:
    """Make a folder with a random name and a lock in it; return both, the lock as a descriptor.

    The folder gets its name when the lock is held, or another process could take it for
    abandoned.
    """
    made = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=parent))
    descriptor = acquire(made / LOCK)
    return made.rename(made.with_name(made.name.removeprefix("new-"))), descriptor


def make_folder(path: Path) -> None:
    """Make a folder for locks, unless it exists, and close it and its locks to strangers.

    Its parents are not made. Locks that strangers can open may be left from another release.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    folder = path.stat()
    if folder.st_mode & stat.S_IWOTH and folder.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(folder.st_mode) & ~stat.S_IWOTH)
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # its daemon has ended just now
            status = file.lstat()
            too_much = stat.S_IMODE(status.st_mode) & ~_mode(status, folder)
            if too_much and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                file.chmod(stat.S_IMODE(status.st_mode) & ~too_much)


def is_free(path: str | Path) -> bool:
    """Return whether nobody holds the lock; a file that is gone counts as free.

    A lock of another user, which this process may not try, counts as held.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        # A shared lock, so that two processes that look at once do not disturb each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove(path: str | Path) -> None:
    """Remove the file, if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
