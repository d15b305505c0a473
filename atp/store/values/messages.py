"""The messages of one attempt: all up to a limit, beyond that only the first and the last."""

import time
from collections import deque
from collections.abc import Callable

from ...conf import settings

# Beyond the limit this many messages a second are sent at once. More of them are held
# back for the rest of the second; then only the last of them are sent.
AT_ONCE = 100


def kept() -> tuple[int, int]:
    """Return how many of an attempt's first messages are kept, and how many of its last."""
    first = settings.MAX_LOG_RECORDS // 5
    return first, max(settings.MAX_LOG_RECORDS - first, 1)


class Messages:
    """Sends the messages of a handler to the daemon, through ``report(kind, …)``."""

    def __init__(self, report: Callable[..., object]) -> None:
        self._report = report
        self._count = self._left_out = self._sent = 0
        self._since = 0.0
        self._held: deque[tuple[int, str]] = deque(maxlen=kept()[1])

    def add(self, level: int, text: str) -> None:
        self._count += 1
        if self._count <= settings.MAX_LOG_RECORDS:
            self._report("log", level, text)
            return
        self._held.append((level, text))
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._sent = now, 0
        if self._sent < AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send the messages held back; from time to time tell the daemon to remove middle ones."""
        self._sent += len(self._held)
        while self._held:
            self._report("log", *self._held.popleft())
        beyond = self._count - settings.MAX_LOG_RECORDS
        if beyond - self._left_out >= settings.MAX_LOG_RECORDS // 10:
            self._leave_out()

    def end(self) -> None:
        """Send all messages held back, because the handler has ended."""
        self.flush()
        if self._count - settings.MAX_LOG_RECORDS > self._left_out:
            self._leave_out()

    def _leave_out(self) -> None:
        """Tell the daemon how many messages in the middle to remove, in all."""
        self._left_out = self._count - settings.MAX_LOG_RECORDS
        self._report("left_out", self._left_out)
