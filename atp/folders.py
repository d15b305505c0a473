"""Folders that the daemons of a host share: owners, modes, file locks."""

import contextlib
import fcntl
import os
import pwd
import stat
import tempfile
from pathlib import Path

# File locks, which the kernel frees when the last process that holds one is dead.
#
# An ``flock`` belongs to the open file. Forked children inherit that file, so one lock can stand
# for a daemon with all its processes.
#
# Who may read a file may also lock it, and would keep a dead daemon alive. So a lock is its user's
# alone, except in a folder in which a group may write: who may remove a lock may also try it.

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


# The owners of folders, for messages about folders that this process cannot write.


def user_name(number: int) -> str:
    """Return the name of a user of the operating system, or the number if the user has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run under a number that has no name
        return str(number)


def whose(path: str | Path) -> str:
    """Return the owner and mode of a folder, and the user of this process, in words."""
    me = f"this is user {user_name(os.geteuid())}"
    try:
        found = os.stat(path)
    except OSError as error:
        return f"it cannot be looked at ({error.strerror}), and {me}"
    mode = stat.S_IMODE(found.st_mode)
    return f"it belongs to user {user_name(found.st_uid)} (mode {mode:04o}), and {me}"


def make_private(path: str | Path) -> bool:
    """Make a folder unless it exists; return whether it is this user's, and nobody else's.

    In a folder such as /tmp another user may make one of that name, or a link, after a program
    that tidies temporary files has removed ours.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return is_private(path)
    return True


def is_private(path: str | Path) -> bool:
    """Return whether only this user can write in the folder; False if there is none, or a link."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    is_closed = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and is_closed


def is_strange(path: str | Path) -> bool:
    """Return whether a stranger may have made the folder, or the link, that is at this path.

    So it is where every user can make one, and it belongs to neither this user nor root.
    """
    try:
        found, around = os.lstat(path), os.stat(Path(path).parent)
    except OSError:
        return False
    return bool(around.st_mode & stat.S_IWOTH) and found.st_uid not in (os.geteuid(), 0)


def refusal(path: str | Path) -> str:
    """Return why this process cannot create files in a folder; "" if it can.

    For a missing folder, which would be created, the nearest existing parent is checked; for one
    that cannot be looked at, the nearest parent that can.
    """
    folder = Path(path)
    # Path.exists() raises PermissionError.
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return ""
    return f"folder {folder} cannot be written: {whose(folder)}"
