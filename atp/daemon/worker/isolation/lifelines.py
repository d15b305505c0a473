"""The descriptors that a worker cannot do without, and that a handler may close."""

import os


class Lifelines:
    """Remembers what these descriptors are."""

    def __init__(self, *descriptors):
        self._descriptors = descriptors
        self._inodes = self._identify()

    def check(self):
        """Raise OSError if a handler has closed one of them, and opened another thing."""
        if self._inodes != self._identify():
            raise OSError("a handler closed the descriptors of its worker")

    def _identify(self):
        return [os.fstat(number).st_ino for number in self._descriptors]
