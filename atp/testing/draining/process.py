"""The process of a test while handlers run in it; its state is restored after each."""

from __future__ import annotations

import contextvars
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from django.core.cache import caches
from django.core.signals import got_request_exception

from ...authoring.context import Context
from ...authoring.log_capture import LogCapture
from ...conf import settings
from ...daemon.worker.isolation.entries import ENTRIES, TIMERS
from ...daemon.worker.isolation.process_state import ProcessState
from ...daemon.worker.preparing import open_root_logger, share_caches
from ...webhooks.sending import Message, kept_in

# The receivers of Django's test client: these fail a request for any exception signalled to them.
_CLIENTS = "request-exception-"


# The webhooks of the handlers that have run in this process, as in Django's mail.outbox.
outbox: list[Message] = []


class Process:
    """A context manager around a drain. One attempt may run inside another."""

    def __init__(self) -> None:
        self._capture = LogCapture()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._levels = root.level, [(handler, handler.level) for handler in root.handlers]
        open_root_logger(settings.LOG_LEVEL)
        root.addHandler(self._capture)
        share_caches()
        self._stack.enter_context(kept_in(outbox))
        receivers = got_request_exception.receivers
        self._clients = [each for each in receivers if _is_client(each)]
        self._set_receivers([each for each in receivers if not _is_client(each)])
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
        own = got_request_exception.receivers
        self._set_receivers([*own, *self._clients])
        root = logging.getLogger()
        root.removeHandler(self._capture)
        level, levels = self._levels
        root.setLevel(level)
        for handler, before in levels:
            handler.setLevel(before)

    @contextmanager
    def running(self, context: Context) -> Iterator[Callable[..., Any]]:
        """Prepare this process for an attempt; yield ``call(function, *args)``, which runs it.

        As in a worker, the function finds no context variables of the test.
        """
        outer, self._capture.context = self._capture.context, context
        is_main = threading.current_thread() is threading.main_thread()
        state = _State() if is_main else None
        own = contextvars.Context()
        shared = {alias: caches[alias] for alias in caches.settings}
        for alias, cache in shared.items():
            own.run(caches.__setitem__, alias, cache)
        try:
            yield own.run
        finally:
            self._capture.context = outer
            if state is not None:
                state.restore()

    @staticmethod
    def _set_receivers(receivers: list[Any]) -> None:
        with got_request_exception.lock:
            got_request_exception.receivers = receivers
            got_request_exception.sender_receivers_cache.clear()


class _State(ProcessState):
    """The ProcessState of a worker, except that timers of the test, as for a time-out, go on."""

    def __init__(self) -> None:
        super().__init__([each for each in ENTRIES if each not in TIMERS])
        self._began = time.monotonic()
        self._alarm = signal.getitimer(signal.ITIMER_REAL)

    def restore(self) -> str:
        left, interval = self._alarm
        if left:
            left = max(left - (time.monotonic() - self._began), 0.001)
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        found: str = super().restore()
        return found


def _is_client(receiver: Any) -> bool:
    identity = receiver[0][0]
    return isinstance(identity, str) and identity.startswith(_CLIENTS)
