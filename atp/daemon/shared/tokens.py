"""Start tokens: a task may be started only by the process that reads its token.

The dispatcher sends a worker several tasks at a time, and writes a token for each into a
pipe. The worker reads the token of a task before it starts the task. The dispatcher takes
unstarted tasks back by reading their tokens itself.
"""

import os
import struct

_TOKEN = struct.Struct("=Q")
# A pipe takes this many tokens in one atomic write, and holds several times as many.
_MOST_AT_ONCE = 4096 // _TOKEN.size


class Tokens:
    """A pipe of serial numbers in rising order. ``giving`` is None in a process that only takes."""

    def __init__(self, taking, giving=None):
        self.taking = taking
        self.giving = giving
        self._ahead = None

    @classmethod
    def pipe(cls):
        """Return a new, empty pipe of tokens. Raises OSError."""
        taking, giving = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
        return cls(taking, giving)

    def give(self, serials):
        """Write a token for each number; the caller makes sure that the pipe has room for them."""
        for first in range(0, len(serials), _MOST_AT_ONCE):
            part = serials[first : first + _MOST_AT_ONCE]
            os.write(self.giving, struct.pack(f"={len(part)}Q", *part))

    def take(self, serial):
        """Take the token of this number; return False if somebody else has taken it."""
        if self._ahead is None:
            try:
                [self._ahead] = _TOKEN.unpack(os.read(self.taking, _TOKEN.size))
            except (BlockingIOError, struct.error):
                return False
        if self._ahead != serial:
            return False  # the token belongs to a later task
        self._ahead = None
        return True

    def take_all(self):
        """Take all tokens that are left, and return their numbers."""
        serials = []
        while True:
            try:
                data = os.read(self.taking, _MOST_AT_ONCE * _TOKEN.size)
            except BlockingIOError:
                return serials
            if not data:
                return serials
            serials.extend(number for (number,) in _TOKEN.iter_unpack(data))

    def descriptors(self):
        """Return the descriptors that another process needs to have these tokens."""
        return [self.taking, self.giving]

    def close(self):
        for descriptor in (self.taking, self.giving):
            if descriptor is not None:
                os.close(descriptor)
        self.taking = self.giving = None


def _pipe():
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends
