"""Folders that the daemons of one host share: their owners, permissions and file locks."""

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
# A user who can open a lock file can also lock it, and would make a dead daemon look alive. So only
# the daemon's user can open it. In a folder to which a group can write, the group can open it too,
# because its members could also remove the lock file.

# The name of a folder's own lock.
LOCK = ".lock"


def acquire_lock(path: str | Path) -> int:
    """Lock a file, and create it if it is missing; return the descriptor that holds the lock.

    Closing the descriptor releases the lock. Raises BlockingIOError if another process holds it.
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
    """Return the permissions for a lock file: a group may write it if it may write the folder."""
    is_shared = folder.st_mode & stat.S_IWGRP and folder.st_gid == status.st_gid
    return 0o660 if is_shared else 0o600


def make_locked_folder(parent: str | Path, prefix: str) -> tuple[Path, int]:
    """Create a folder with a random name and a lock file in it.

    Return the folder, and the descriptor that holds the lock. The folder gets its final name only
    after the lock is held, because other processes remove folders that nobody has locked.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=parent))
    descriptor = acquire_lock(folder / LOCK)
    return folder.rename(folder.with_name(folder.name.removeprefix("new-"))), descriptor


def make_folder(path: Path) -> None:
    """Create a folder for lock files if it is missing, and protect it from other users.

    The parent folder must exist. This also restricts the permissions of lock files that exist
    already, because older releases created them with wider permissions.
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
    """Return True if no process holds the lock on a file, or if the file does not exist.

    A file that this process has no permission to open counts as locked.
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
    """Return the name of the user with this number; the number as text if the user has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # the user of a container may have no name
        return str(number)


def describe_owner(path: str | Path) -> str:
    """Say who owns a folder, which mode the folder has, and which user runs this process."""
    me = f"this is user {user_name(os.geteuid())}"
    try:
        status = os.stat(path)
    except OSError as error:
        return f"its owner is unknown ({error.strerror}), and {me}"
    mode = stat.S_IMODE(status.st_mode)
    return f"it belongs to user {user_name(status.st_uid)} (mode {mode:04o}), and {me}"


def make_private(path: str | Path) -> bool:
    """Create a folder if it is missing; return True if :func:`is_private` holds for it.

    In a folder such as /tmp, a cleanup program can remove our folder. Another user can then create
    a folder or a link with the same name.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return is_private(path)
    return True


def is_private(path: str | Path) -> bool:
    """Return True if a path is a folder, not a link, and only this user can write to it.

    This user must also own the folder.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_closed = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and is_closed


def is_strange(path: str | Path) -> bool:
    """Return True if another user might have created the folder or link at this path.

    This is assumed if every user can write to the parent folder, and neither this user nor root
    owns the folder or link.
    """
    try:
        status, parent = os.lstat(path), os.stat(Path(path).parent)
    except OSError:
        return False
    return bool(parent.st_mode & stat.S_IWOTH) and status.st_uid not in (os.geteuid(), 0)


def why_unwritable(path: str | Path) -> str:
    """Return why this process cannot create files in a folder; "" if it can.

    If the folder does not exist, or this process cannot see it, the function checks the nearest
    parent that this process can see.
    """
    folder = Path(path)
    # Path.exists() raises PermissionError.
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return ""
    return f"folder {folder} cannot be written: {describe_owner(folder)}"
