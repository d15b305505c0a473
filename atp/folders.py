"""Folders that the daemons of a host share: owners, modes, file locks."""

import contextlib
import fcntl
import os
import pwd
import stat
import tempfile
from pathlib import Path

# File locks
#
# The kernel frees a lock when the last process that holds it is dead. An ``flock`` belongs to the
# open file, which forked children inherit, so one lock can stand for a daemon with all its
# processes.
#
# A user who may read a file may also lock it, and would keep a dead daemon alive. So only its user
# may open a lock, except in a folder that a group may write: those who may remove a lock may also
# try it.

# The name of a folder's own lock.
LOCK = ".lock"


def acquire_lock(path: str | Path) -> int:
    """Create and lock a file; return a descriptor, which holds the lock until it is closed.

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
    """Make a folder with a random name and a lock in it; return the folder and the descriptor.

    The folder gets its final name only once the lock is held: before, another process could think
    that the folder is abandoned.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=parent))
    descriptor = acquire_lock(folder / LOCK)
    return folder.rename(folder.with_name(folder.name.removeprefix("new-"))), descriptor


def make_folder(path: Path) -> None:
    """Make a folder for locks, unless it exists, and close it and its locks to other users.

    The parents must exist. An older release may have left locks that other users can open.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    folder = path.stat()
    if folder.st_mode & stat.S_IWOTH and folder.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(folder.st_mode) & ~stat.S_IWOTH)
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # its daemon has just ended
            status = file.lstat()
            too_much = stat.S_IMODE(status.st_mode) & ~_mode(status, folder)
            if too_much and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                file.chmod(stat.S_IMODE(status.st_mode) & ~too_much)


def is_free(path: str | Path) -> bool:
    """Return True if no process holds the lock, or the file does not exist.

    Another user's lock, which this process may not try, counts as held.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        # A shared lock, so that two processes can try at the same time.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_file(path: str | Path) -> None:
    """Remove a file, if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


# The owners of folders


def user_name(number: int) -> str:
    """Return the name of a user of the operating system; the number as text without a name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # the user of a container may have no name
        return str(number)


def describe_owner(path: str | Path) -> str:
    """Return the owner and mode of a folder, and the user of this process, in words."""
    me = f"this is user {user_name(os.geteuid())}"
    try:
        status = os.stat(path)
    except OSError as error:
        return f"its owner is unknown ({error.strerror}), and {me}"
    mode = stat.S_IMODE(status.st_mode)
    return f"it belongs to user {user_name(status.st_uid)} (mode {mode:04o}), and {me}"


def make_private(path: str | Path) -> bool:
    """Make a folder unless it exists; return True if it belongs to this user alone.

    In a folder such as /tmp another user may make a folder or a link with that name, after a
    program that tidies temporary files has removed ours.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return is_private(path)
    return True


def is_private(path: str | Path) -> bool:
    """Return True if the path is a folder, not a link, in which only this user can write."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_closed = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and is_closed


def is_strange(path: str | Path) -> bool:
    """Return True if a stranger may have made the folder or the link at this path.

    So every user can write in its parent, and it belongs to neither this user nor root.
    """
    try:
        status, parent = os.lstat(path), os.stat(Path(path).parent)
    except OSError:
        return False
    return bool(parent.st_mode & stat.S_IWOTH) and status.st_uid not in (os.geteuid(), 0)


def why_unwritable(path: str | Path) -> str:
    """Return why this process cannot create files in a folder; "" if it can.

    If the folder is missing, or this process cannot see it, this checks its nearest parent that
    this process can see.
    """
    folder = Path(path)
    # Path.exists() raises PermissionError.
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return ""
    return f"folder {folder} cannot be written: {describe_owner(folder)}"
