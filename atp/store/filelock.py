"""File locks that the kernel frees when their last holder is dead.

An ``flock`` belongs to the open file, which children inherit when they are
forked, so one lock can stand for a whole family of processes.
"""

import fcntl
import os


def acquire(path):
    """Create and lock the file. Returns its descriptor, which holds the lock until closed.

    Raises BlockingIOError if somebody else holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Whoever may make locks in the folder may try this one.
        shared = os.stat(os.path.dirname(path) or ".").st_mode & 0o066
        if shared:
            os.fchmod(descriptor, 0o600 | shared)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_free(path):
    """Tell whether nobody holds the lock; a file that is gone is free.

    One that belongs to another user, and so cannot be tried, counts as held.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        # A shared lock, so that two who look at once do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove(path):
    """Remove the file; no error if it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
