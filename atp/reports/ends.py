"""The ends of Instances that clients wait for: one thread a process looks for all of them.

Nothing is told when an Instance ends: on PostgreSQL a notification takes a lock of the
whole server at each commit. So one statement asks about all keys together, on a
connection of its own. The thread starts when somebody waits and ends when nobody does.
A process that is forked has nobody who waits.
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

# Time between two looks, in seconds: it grows from the first to the second, and begins
# anew when another waits. Where the store tells of commits, it looks only after one.
SOON, SELDOM = 0.01, 0.1
# A look may take this part of the time at most.
BUSY = 0.2
# After a failure the next look waits this long, in seconds.
PAUSE = 1.0

_log = logging.getLogger("atp")


class Ends:
    """Tells who waits for an Instance that it has ended, or is gone."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[int, Callable[[], object]]] = {}
        self._has_changed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, key: int, call: Callable[[], object]) -> object:
        """Have ``call()`` called once, in another thread, after the end of an Instance.

        ``key`` is its primary key. Returns a token for :meth:`forget`, which is to be called
        in any case. Ends in a transaction that has not committed are not seen.
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
        """Call nobody for this token any more."""
        with self._lock:
            self._waiting.pop(token, None)
            is_last = not self._waiting
        if is_last:
            self._has_changed.set()

    def _run(self) -> None:
        # Waits until watch() has its thread.
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
        """The keys that are waited for; without any, the thread has to end."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return {key for key, _ in self._waiting.values()}

    def _look(self, keys: set[int], pause: float) -> float:
        """Call those whose Instance has ended, and return the time until the next look."""
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
