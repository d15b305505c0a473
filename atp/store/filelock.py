"""File locks, which the kernel frees when the last process that holds one is dead.

An ``flock`` belongs to the open file. Forked children inherit that file, so one lock can stand
for a daemon with all its processes.
"""

import fcntl
import os


def acquire(path):
    """Create and lock the file; returns the descriptor, which holds the lock until closed.

    Raises BlockingIOError if another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Every user who may create locks in the folder may also try this one.
        shared = os.stat(os.path.dirname(path) or ".").st_mode & 0o066
        if shared:
            os.fchmod(descriptor, 0o600 | shared)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_free(path):
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


def remove(path):
    """Remove the file, if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
