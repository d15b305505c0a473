"""A ring buffer in shared memory: a worker writes the ends of its attempts, the dispatcher reads.

A worker with many short tasks writes the end of each without waking the dispatcher. The
record stays in the ring whatever the worker runs next, even if the worker dies.
"""

import struct
from zlib import crc32

# Bytes written and bytes read since the beginning.
_COUNTS = 16
# The head of each record: its length and its checksum. Another processor may see the count
# before it sees the bytes; then the checksum is wrong, and the next read tries again.
_HEAD = struct.Struct("=II")


class Ring:
    """Records of bytes in a piece of shared memory; one process writes, another reads."""

    def __init__(self, memory):
        # One item of a cast memoryview is written in one piece.
        self._counts = memory[:_COUNTS].cast("Q")
        self._bytes = memory[_COUNTS:]
        self._size = len(self._bytes)

    @property
    def written(self):
        """The number of bytes written since the beginning; :meth:`read` takes it as ``until``."""
        return self._counts[0]

    @property
    def has_news(self):
        """Whether there are records that have not been read."""
        return self._counts[0] != self._counts[1]

    def write(self, record):
        """Append a record; return False if there is no room for it."""
        frame = _HEAD.pack(len(record), crc32(record)) + record
        at = self._counts[0]
        if len(frame) > self._size - (at - self._counts[1]):
            return False
        place = at % self._size
        first = self._size - place
        if len(frame) <= first:
            self._bytes[place : place + len(frame)] = frame
        else:
            self._bytes[place:] = frame[:first]
            self._bytes[: len(frame) - first] = frame[first:]
        self._counts[0] = at + len(frame)
        return True

    def read(self, until):
        """Remove and return the records up to the count of bytes ``until``, oldest first."""
        begin = self._counts[1]
        data = self._copy(begin, until)
        records, at, size, head = [], 0, len(data), _HEAD.size
        while at < size:
            length, checksum = _HEAD.unpack_from(data, at)
            end = at + head + length
            record = data[at + head : end]
            if crc32(record) != checksum:
                break
            records.append(record)
            at = end
        if at:
            self._counts[1] = begin + at
        return records

    def _copy(self, begin, end):
        if begin == end:
            return b""
        first, last = begin % self._size, end % self._size
        if first < last:
            return bytes(self._bytes[first:last])
        return bytes(self._bytes[first:]) + bytes(self._bytes[:last])

    def skip(self):
        """Skip all records that have not been read."""
        self._counts[1] = self._counts[0]
