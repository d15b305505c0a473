"""The directory that a demo writes to, which only one may use at a time."""

import fcntl
from contextlib import contextmanager

from . import DemoError


@contextmanager
def owned(directory):
    """Make the directory and hold it. Raises DemoError if another demo does."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise DemoError(f"{directory} cannot be written: {error.strerror}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"Another demo is running in {directory}. "
                "Stop it, or set DEMO_DIR to another directory."
            ) from None
        yield
