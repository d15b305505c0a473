"""What handlers tell a benchmark past the queue: pairs of numbers, added to one file."""

import os
import struct
from contextlib import contextmanager
from functools import cache

_VARIABLE = "BENCHMARK_TOLD"
_PAIR = struct.Struct("qd")


def tell(number, value):
    """Add a pair to the file. Written at once, so what several processes tell does not mix."""
    os.write(_descriptor(os.environ[_VARIABLE]), _PAIR.pack(number, value))


@cache
def _descriptor(path):
    return os.open(path, os.O_WRONLY | os.O_APPEND)


class Told:
    """The file, as the benchmark reads it."""

    def __init__(self, path):
        self._path = path
        self.forget()

    def forget(self):
        """Empty the file."""
        self._path.write_bytes(b"")

    def pairs(self):
        """Return what was told, in its order."""
        return list(_PAIR.iter_unpack(self._path.read_bytes()))


@contextmanager
def listening(directory):
    """Let daemons that are started meanwhile tell something; give the :class:`Told`."""
    path = directory / "told"
    os.environ[_VARIABLE] = str(path)
    try:
        yield Told(path)
    finally:
        del os.environ[_VARIABLE]
        path.unlink()
