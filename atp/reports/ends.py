"""Wait for Instances to end: one thread in each process polls for all clients that wait.

An Instance sends no notification when it ends, because on PostgreSQL each commit with a
notification takes a lock of the whole server. Instead, the thread asks about all awaited Instances
in one statement, on its own connection. The thread starts with the first waiting client and ends
after the last one. After a fork, the child process has no waiting clients.
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
from ..store.protocol import Commits

# Seconds between two polls. They grow from SOON to SELDOM, and start at SOON again with each
# new client. If the store reports commits, the thread polls only after one.
SOON, SELDOM = 0.01, 0.1
# The maximum fraction of the time that polls may take.
BUSY = 0.2
# After a database error the next poll waits this long, in seconds.
PAUSE = 1.0

_log = logging.getLogger("atp")


class Ends:
    """Calls a waiting client back when its Instance has ended or has been removed."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[int, Callable[[], object]]] = {}
        self._has_changed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, key: int, call: Callable[[], object]) -> object:
        """Register ``call``, which another thread calls once when an Instance has ended.

        ``key`` is the primary key of the Instance. An Instance has ended when the transaction that
        ends it is committed. Returns a token, which the caller must always pass to :meth:`forget`.
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
        """Remove the callback for which :meth:`watch` returned this token."""
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
            while keys := self._awaited_keys():
                if self._has_changed.is_set():
                    self._has_changed.clear()
                    pause = SOON
                began = time.monotonic()
                pause = max(self._poll(keys, pause), (time.monotonic() - began) / BUSY)
                self._wait_for_next_poll(commits, pause)
        except Exception:  # each client stops waiting when its time is up
            _log.exception("The thread that waits for Instances to end has failed.")
            with self._lock:
                self._thread = None
        finally:
            if commits is not None:
                commits.close()
            connections.close_all()

    def _awaited_keys(self) -> set[int]:
        """Return the primary keys of the awaited Instances. Without any, the thread must end."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return {key for key, _ in self._waiting.values()}

    def _poll(self, keys: set[int], pause: float) -> float:
        """Call the callbacks of ended Instances; return the seconds to wait until the next poll."""
        try:
            rows = Instance.objects.using(settings.DATABASE)
            live = set(rows.filter(pk__in=keys, finished=None).values_list("pk", flat=True))
        except Error:
            connections[settings.DATABASE].close()
            return PAUSE
        ended = keys - live
        with self._lock:
            tokens = [token for token, (key, _) in self._waiting.items() if key in ended]
            calls = [self._waiting.pop(token)[1] for token in tokens]
        for call in calls:
            call()
        return min(pause * 1.5, SELDOM)

    def _wait_for_next_poll(self, commits: Commits | None, pause: float) -> None:
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
