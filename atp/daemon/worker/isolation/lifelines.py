"""Lifelines: descriptors that a worker needs, and that a handler could close by mistake."""

import os


class Lifelines:
    """The descriptors that a worker needs, with the inodes that they should have."""

    def __init__(self, *descriptors):
        self._descriptors = descriptors
        self._inodes = self._identify()

    def check(self):
        """Raise OSError if a handler has closed one of them, even if it has reused the number."""
        if self._inodes != self._identify():
            raise OSError("a handler closed the descriptors of its worker")

    def _identify(self):
        return [os.fstat(number).st_ino for number in self._descriptors]
