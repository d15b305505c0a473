"""A channel carries messages between two processes of a daemon, one packet for each message.

A message that is too large for a packet is written to a file in memory, and the packet
passes the descriptor of the file. Both ends are forks of one process, so messages are pickles.
"""

import array
import contextlib
import os
import pickle
import select
import socket
import tempfile

# SEQPACKET keeps messages apart and tells when the other end is closed. On a system without
# it, datagrams between two connected local sockets are as reliable.
_KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
MAX_PACKET = 32 * 1024
MAX_DESCRIPTORS = 4
_INLINE, _FILE = b"\x00", b"\x01"
_BUFFER = 1024 * 1024
# The arguments of every call of recvmsg, computed once.
_SPACE = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
_WAITING = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_AT_ONCE = _WAITING | socket.MSG_DONTWAIT


class Closed(Exception):
    """The other end is closed."""


class Channel:
    """One end of a pair of connected sockets."""

    def __init__(self, end):
        self._socket = end
        # Whether draining it has shown that the other end is closed.
        self.has_ended = False

    @classmethod
    def pair(cls):
        """Return two connected ends."""
        ends = socket.socketpair(socket.AF_UNIX, _KIND)
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        return cls(ends[0]), cls(ends[1])

    @classmethod
    def from_descriptor(cls, descriptor):
        """Return an end that was passed from another process."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self):
        return self._socket.fileno()

    def descriptors(self):
        """Return the descriptors that another process needs in order to use this end."""
        return [self.fileno()]

    def close(self):
        self._socket.close()

    def send(self, message, descriptors=(), *, wait=True):
        """Send a message, and pass the open ``descriptors`` with it.

        Raises Closed, and BlockingIOError if ``wait`` is False and the socket's buffer is full.
        Several threads and forks may call this: the kernel takes a packet as a whole. A lock would
        stay locked in a fork.
        """
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        flags = 0 if wait else socket.MSG_DONTWAIT
        if len(data) <= MAX_PACKET:
            self._send(_INLINE + data, descriptors, flags)
            return
        with _spooled(data) as spooled:
            self._send(_FILE, (*descriptors, spooled.fileno()), flags)

    def _send(self, packet, descriptors, flags):
        try:
            if not descriptors:
                self._socket.send(packet, flags)
                return
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            self._socket.sendmsg([packet], [rights], flags)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def has_message(self, *, within):
        """Wait for a message or the end, up to so many seconds; return whether one has come."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(1000 * within))

    def receive(self, *, wait=True):
        """Return ``(message, descriptors)``.

        Raises Closed, and BlockingIOError if ``wait`` is False and no message has come yet.
        """
        flags = _WAITING if wait else _AT_ONCE
        try:
            packet, ancillary, _, _ = self._socket.recvmsg(MAX_PACKET + 1, _SPACE, flags)
        except ConnectionResetError:
            raise Closed from None
        if not packet:
            raise Closed
        descriptors = _descriptors(ancillary) if ancillary else []
        if packet[:1] == _INLINE:
            return pickle.loads(memoryview(packet)[1:]), descriptors  # noqa: S301 (our own fork)
        with os.fdopen(descriptors.pop(), "rb") as spooled:
            spooled.seek(0)
            return pickle.load(spooled), descriptors  # noqa: S301

    def drain(self):
        """Yield the messages that have come so far; stop when none is left or the end is closed."""
        while True:
            try:
                message, descriptors = self.receive(wait=False)
            except BlockingIOError:
                return
            except Closed:
                self.has_ended = True
                return
            for descriptor in descriptors:
                os.close(descriptor)
            yield message


def _spooled(data):
    """Return an unnamed file that holds ``data``."""
    if hasattr(os, "memfd_create"):
        spooled = os.fdopen(os.memfd_create("atp", os.MFD_CLOEXEC), "w+b")
    else:
        spooled = tempfile.TemporaryFile()
    spooled.write(data)
    spooled.flush()
    return spooled


def _descriptors(ancillary):
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return list(numbers)
