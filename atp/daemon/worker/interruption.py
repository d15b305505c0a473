"""Interrupting and pausing a handler."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType, TracebackType
from typing import Any, Self

from django.db import connections

from ...exceptions import Interrupted, PausedInTransaction
from ..processes import uptime
from ..protocol import Key
from ..shared_memory import END, GO, NEVER, PAUSE, Page

# Interrupting a handler, which need not check for commands: a signal raises Interrupted in it, or
# cancels it if it is a coroutine.
#
# The signal interrupts only the handler itself. ATP's own code before and after it would break.
# A signal that comes before the handler is remembered until the handler is entered. A signal
# that comes after it is ignored.

# Nobody else uses this signal. The kernel ignores it if it has no handler, so it kills no
# worker even if a task has removed ours.
SIGNAL = signal.SIGURG


class Never(nullcontext):
    """A stand-in for :class:`Interruption` where nobody interrupts handlers."""

    def by(self, cancel: Callable[[], object]) -> Self:
        return self


class Interruption:
    """The interruption of one worker's handlers; a context manager around each handler.

    ``is_asked(key)`` tells whether the attempt of this key has been asked to end.
    """

    def __init__(self, is_asked: Callable[[Key], bool]) -> None:
        self._is_asked = is_asked
        self._key: Key | None = None
        self._is_inside = False
        # The function that interrupts a coroutine handler, instead of an exception.
        self._cancel: Callable[[], object] | None = None
        # The key of the last attempt whose signal came before its handler was entered.
        self._early: Key | None = None
        # Whether the signal has struck inside a handler, at whatever point of its code.
        self.has_struck = False

    @property
    def is_inside(self) -> bool:
        """Whether the handler is running and may be interrupted."""
        return self._is_inside

    def listen(self) -> None:
        """Handle the signal from now on. Call this in the main thread."""
        signal.signal(SIGNAL, self._on_signal)

    def expect(self, key: Key) -> None:
        """Set the key of the attempt that may be interrupted from now on."""
        self._key = key

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._key is None or not self._is_asked(self._key):
            return  # the signal was for an attempt that has ended
        if self._is_inside:
            self.has_struck = True
            self._strike()
        else:
            self._early = self._key

    def _strike(self) -> None:
        """Interrupt the handler, only once, so that it can clean up undisturbed."""
        self._is_inside, self._key = False, None
        if self._cancel is None:
            raise Interrupted
        self._cancel()

    def by(self, cancel: Callable[[], object]) -> Self:
        """Return self, to be entered around one handler that ``cancel()`` interrupts."""
        self._cancel = cancel
        return self

    def __enter__(self) -> None:
        self._is_inside = True
        if self._early is not None and self._early == self._key:
            self._strike()

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Delay an interruption of the handler until the end of the block."""
        is_inside = self._is_inside and threading.current_thread() is threading.main_thread()
        if is_inside:
            self._is_inside = False
        try:
            yield
        finally:
            if is_inside:
                self.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_inside, self._cancel = False, None
        # A signal that comes from here on comes too late.
        self._key = None


# The pauses of an attempt, in its worker: at a check for commands, or at the handler's own wish.

# A paused attempt checks this often whether it may go on, in seconds.
LOOK_EVERY = 0.02


class Pauses:
    """The pauses of one worker's attempts. Their time does not count towards the time-out."""

    def __init__(self, page: Page, slot: int) -> None:
        self._page = page
        self._slot = slot
        self._pid = os.getpid()
        self._key: Any = None
        self._report: Any = None
        self._number = 0
        self._depth = 0
        self._left = 0.0

    def expect(self, key: Key, report: Callable[..., object]) -> None:
        """Set the attempt that may pause from now on, and its ``report(kind, …)``."""
        self._key, self._report = key, report
        self._number = self._depth = 0

    def look(self) -> None:
        """Pause here if asked to; never inside a transaction or outside the main thread."""
        if self._asked()[0] == PAUSE and self._is_the_handler() and not _in_transaction():
            with self._paused("", is_own=False):
                pass

    @contextmanager
    def own(self, message: str) -> Iterator[None]:
        """Pause the attempt during the block. Raises PausedInTransaction."""
        if _in_transaction():
            raise PausedInTransaction("A pause inside a transaction would keep it open.")
        if self._depth or not self._is_the_handler():
            yield
            return
        with self._paused(message, is_own=True):
            yield

    @contextmanager
    def _paused(self, message: str, is_own: bool) -> Iterator[None]:
        self._number += 1
        self._depth += 1
        running: Any = self._page.read(self._slot)
        self._left = running.deadline - uptime()
        self._page.put_off(self._slot, NEVER)
        self._report("paused", self._number, message, is_own)
        try:
            yield
        finally:
            try:
                if is_own:
                    self._report("resuming")
                self._wait()
            finally:
                self._page.put_off(self._slot, uptime() + self._left)
                self._depth -= 1
                self._report("resumed")

    def _wait(self) -> None:
        while self._asked() not in ((END, 0), (GO, self._number)):
            time.sleep(LOOK_EVERY)

    def _asked(self) -> tuple[int, int]:
        return self._page.asked(self._slot, *self._key)

    def _is_the_handler(self) -> bool:
        is_main = threading.current_thread() is threading.main_thread()
        return is_main and os.getpid() == self._pid


def _in_transaction() -> bool:
    return any(each.in_atomic_block for each in connections.all(initialized_only=True))
