"""The directory that the demo writes to. Only one demo can use it at a time."""

import fcntl
from contextlib import contextmanager

from . import DemoError


@contextmanager
def owned(directory):
    """Create the directory and lock it. Raises DemoError if another demo holds the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise DemoError(f"The demo cannot write to {directory}: {error.strerror}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"Another demo is running in {directory}. "
                "Stop it, or set DEMO_DIR to another directory."
            ) from None
        yield
