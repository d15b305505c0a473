"""The owners of folders, for messages about folders that this process cannot write."""

import os
import pwd
import stat
from pathlib import Path


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
