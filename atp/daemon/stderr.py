"""Writing the log without ever waiting for its reader.

A pipe to a pager, a stopped terminal or a full journal must not keep the supervisor from
killing in time. Lines that cannot be written are dropped and counted.
"""

import contextlib
import io
import logging
import os
import select
import socket
import stat
import traceback
from collections.abc import Callable

from .. import text as wording

# In characters: an exception may have any text.
LONGEST_LINE = 64 * 1024


class NonBlockingHandler(logging.Handler):
    """A log handler that writes lines to standard error; it never blocks and never raises.

    It skips records with ``_is_written``: it has written them already, before the project's
    handlers got them.
    """

    def __init__(self, descriptor: int = 2) -> None:
        super().__init__()
        self._write = writer(descriptor)
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "_is_written", False):
            return
        try:
            line = _shortened(self.format(record)) + "\n"
            if self._dropped:
                line = f"{self._dropped} lines of the log were dropped: nobody read it\n{line}"
            self._write(line.encode("utf-8", "backslashreplace"))
            self._dropped = 0
        except OSError:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (of logging)
        """Report a record that cannot be formatted, without sys.stderr, which could block."""
        with contextlib.suppress(OSError):
            why = wording.continuation_lines(traceback.format_exc().rstrip())
            text = f"{wording.one_line(record.name)}: a line could not be logged\n{why}\n"
            self._write(text.encode("utf-8", "backslashreplace"))


class NonBlockingStream(io.TextIOBase):
    """A replacement for sys.stderr that never blocks and never raises.

    Python and libraries may write any text there, so each line of it is marked. It is written
    when it is whole, or another process would write into it.
    """

    def __init__(self, descriptor: int = 2) -> None:
        self._write = writer(descriptor)
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        lines, end, self._rest = (self._rest + text).rpartition("\n")
        if end:
            self._write_marked(lines)
        if len(self._rest) > LONGEST_LINE:
            self.flush()
        return len(text)

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        if rest:
            self._write_marked(rest)

    def _write_marked(self, lines: str) -> None:
        with contextlib.suppress(OSError):
            text = wording.continuation_lines(lines) + "\n"
            self._write(text.encode("utf-8", "backslashreplace"))


def _shortened(line: str) -> str:
    """Cut the middle out of a line that is longer than LONGEST_LINE."""
    if len(line) <= LONGEST_LINE:
        return line
    half = LONGEST_LINE // 2
    return f"{line[:half]} … {len(line) - 2 * half} characters … {line[-half:]}"


def writer(descriptor: int) -> Callable[[bytes], int]:
    """Return a function that writes bytes without waiting, or raises OSError.

    That function returns the number of bytes that it has written.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return len  # closed: there is no log
    if stat.S_ISSOCK(mode):
        link = socket.socket(fileno=os.dup(descriptor))
        return lambda data: link.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISREG(mode):
        # A worker goes on logging to this file when its standard error has become a pipe.
        kept = os.dup(descriptor)
        return lambda data: os.write(kept, data)
    try:
        # Open the file anew: a shared open file would become non-blocking for all processes
        # that have it.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return lambda data: _write_if_ready(descriptor, data)
    os.set_inheritable(own, False)
    kept = _Kept(own)
    return lambda data: os.write(kept.descriptor, data)


class _Kept:
    """A descriptor that is closed when its last user is garbage-collected."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


def _write_if_ready(descriptor: int, data: bytes) -> int:
    """Write up to PIPE_BUF bytes, which a ready pipe takes at once; else raise BlockingIOError."""
    _, ready, _ = select.select([], [descriptor], [], 0)
    if not ready:
        raise BlockingIOError
    return os.write(descriptor, data[: select.PIPE_BUF])
