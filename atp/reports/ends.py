"""The ends of Instances that clients wait for: one thread in each process looks for all of them.

The end of an Instance sends no notification: on PostgreSQL that would take a lock of the
whole server at each commit. Instead, one statement asks about all keys together, on a
connection of its own. The thread starts when a client waits and ends when none does.
A forked process starts without waiting clients.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

from django.db import Error, connections

from ..conf import settings
from ..models import Instance
from ..store import get_store
from ..store.contract.wakeups import Commits

# Time between two looks, in seconds: it grows from SOON to SELDOM, and starts at SOON again
# with each new client. If the store tells of commits, the thread looks only after one.
SOON, SELDOM = 0.01, 0.1
# The maximum part of the time that looks may take.
BUSY = 0.2
# After a failure the next look waits this long, in seconds.
PAUSE = 1.0

_log = logging.getLogger("atp")


class Ends:
    """Calls waiting clients back when their Instance has ended, or is gone."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[int, Callable[[], object]]] = {}
        self._has_changed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, key: int, call: Callable[[], object]) -> object:
        """Register ``call``, which is called once, in another thread, after the end of an Instance.

        ``key`` is the primary key of the Instance. Returns a token, which the caller must give to
        :meth:`forget` in any case. An end in an uncommitted transaction is not seen.
        """
        token = object()
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="atp-ends", daemon=True)
                thread.start()
                self._thread = thread
            self._waiting[token] = key, call
        self._has_changed.set()
        return token

    def forget(self, token: object) -> None:
        """Remove the callback of this token."""
        with self._lock:
            self._waiting.pop(token, None)
            is_last = not self._waiting
        if is_last:
            self._has_changed.set()

    def _run(self) -> None:
        # Wait until watch() has stored this thread.
        with self._lock:
            pass
        commits = None
        try:
            commits = get_store().commits()
            pause = SOON
            while keys := self._keys():
                if self._has_changed.is_set():
                    self._has_changed.clear()
                    pause = SOON
                began = time.monotonic()
                pause = max(self._look(keys, pause), (time.monotonic() - began) / BUSY)
                self._rest(commits, pause)
        except Exception:  # who waits is answered when the time is up
            _log.exception("The thread that looks for ends has failed.")
            with self._lock:
                self._thread = None
        finally:
            if commits is not None:
                commits.close()
            connections.close_all()

    def _keys(self) -> set[int]:
        """Return the keys that clients wait for; if there are none, let the thread end."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return {key for key, _ in self._waiting.values()}

    def _look(self, keys: set[int], pause: float) -> float:
        """Call the callbacks of ended Instances; return the seconds until the next look."""
        try:
            rows = Instance.objects.using(settings.DATABASE)
            live = set(rows.filter(pk__in=keys, finished=None).values_list("pk", flat=True))
        except Error:
            connections[settings.DATABASE].close()
            return PAUSE
        ended = keys - live
        with self._lock:
            told = [token for token, (key, _) in self._waiting.items() if key in ended]
            calls = [self._waiting.pop(token)[1] for token in told]
        for call in calls:
            call()
        return min(pause * 1.5, SELDOM)

    def _rest(self, commits: Commits | None, pause: float) -> None:
        if commits is None:
            time.sleep(SOON)
            self._has_changed.wait(pause)
            return
        time.sleep(min(pause, SELDOM))
        until = time.monotonic() + PAUSE
        while time.monotonic() < until and not self._has_changed.is_set():
            if commits.wait(SOON):
                return


ends = Ends()
