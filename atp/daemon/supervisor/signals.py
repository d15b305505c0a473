"""Signals to the supervisor: they wake it up, and it asks which ones came."""

import contextlib
import signal
import socket

from ..system import processes


class Signals:
    """The signals that have come since this was made. A selector can wait for the object."""

    def __init__(self):
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._stops = []
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, processes.ignore)
        for number in processes.STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._on_stop)

    def _on_stop(self, number, frame):
        self._stops.append(signal.Signals(number).name)

    def fileno(self):
        return self._woken.fileno()

    def close(self):
        """Close the sockets that wake us up. The caller has reset the signal handling before."""
        self._woken.close()
        self._waker.close()

    def clear(self):
        """Empty the socket that woke us up."""
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def take_stops(self):
        """Return the names of the stop signals that came since the last call."""
        stops, self._stops = self._stops, []
        return stops

    def leave_to_parent(self):
        """In a child: ignore the signals that a terminal or systemd sends to all processes."""
        signal.set_wakeup_fd(-1)
        for number in processes.STOPS:
            signal.signal(number, processes.ignore)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.close()
