"""The part of inotify that is needed: has a file been written to?"""

import contextlib
import ctypes
import os
import select

_IN_MODIFY = 0x2


class Watch:
    """Watches the files at ``paths`` for writes. Raises OSError if inotify is not available."""

    def __init__(self, paths):
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            raise OSError("inotify is a part of Linux") from None
        if self._descriptor < 0:
            raise _error()
        for path in paths:
            if libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY) < 0:
                error = _error()
                self.close()
                raise error
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout):
        """Wait up to ``timeout`` seconds; returns whether there was a write since clear()."""
        return bool(self._poll.poll(timeout * 1000))

    def clear(self):
        """Forget all writes so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, 4096):
                pass

    def close(self):
        os.close(self._descriptor)


def _error():
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
