"""A process's connections; calls in a thread, with a time limit."""

import contextlib
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from ..conf import settings
from . import log
from .options import hostname
from .processes import uptime

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ..store.protocol import Store

Value = TypeVar("Value")

# Calls to the store in threads beside the event loop, each with a time limit.
#
# A call runs in a thread that has a connection of its own. If a call takes too long, the
# dispatcher shuts down the connection's socket: signals do not interrupt a driver that waits in
# C code, and a server's statement_timeout does not notice a dead link.

# If a call goes on after its connection was cut, the connection is cut again after this many
# seconds.
CUT_AGAIN = 1.0
# The time that a statement waits for a lock of another session, in seconds.
LOCK_TIMEOUT = 0.1


@dataclass(frozen=True)
class Result(Generic[Value]):
    """The result of a call: its ``value`` or its ``error``.

    ``sent`` and ``received`` are times on the uptime clock. ``is_locked``: the error is only a
    lock that another session holds. ``failed(result)``, if given, takes an error instead of
    the dispatcher.
    """

    doing: str
    then: "Callable[[Result[Value]], None]"
    value: Value = None  # type: ignore[assignment]
    error: BaseException | None = None
    is_locked: bool = False
    failed: "Callable[[Result[Any]], None] | None" = None
    sent: float = 0.0
    received: float = 0.0


# What threads put their results into.
Results: TypeAlias = "queue.SimpleQueue[tuple[DatabaseThread, Result[Any]]]"


class DatabaseThread:
    """A thread with one connection, which runs one call at a time.

    It puts each Result into the queue ``results``, and then calls ``wake()``. No call waits
    long for locks of other sessions. If no call comes for ``keep`` seconds, it closes its
    connection until the next one.
    """

    def __init__(
        self,
        name: str,
        store: "Store",
        results: Results,
        wake: Callable[[], None],
        keep: float | None = None,
    ) -> None:
        self._calls: queue.SimpleQueue[tuple[str, Any, Any, Any]] = queue.SimpleQueue()
        self._store = store
        self._results = results
        self._wake = wake
        self._keep = keep
        # The words that describe the call in progress; None if there is none.
        self.doing: str | None = None
        self._is_stale = False
        self._since = 0.0
        self._deadline: float | None = None
        self._connection: BaseDatabaseWrapper | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call is in progress, or its result is not collected yet."""
        return self.doing is not None

    def submit(
        self,
        doing: str,
        call: Callable[[], Value],
        then: Callable[[Result[Value]], None],
        failed: Callable[[Result[Any]], None] | None = None,
    ) -> None:
        """Run ``call()``; its result goes to ``then(result)`` on the event loop.

        An error goes to ``failed(result)`` there, if that is given.

        ``doing`` describes the call in the log.
        """
        if self.busy:
            raise AssertionError(f"{doing}: still {self.doing}")
        self.doing, self._since, self._deadline = doing, uptime(), None
        self._calls.put((doing, call, then, failed))

    def reconnect(self) -> None:
        """Use a new connection from the next call on, after a failure in this or another thread."""
        self._is_stale = True

    def answered(self) -> None:
        """Note that the event loop has collected the result of the call."""
        self.doing = None

    def cut_if_overdue(self, limit: float) -> None:
        """Shut the connection down if the call takes over ``limit`` seconds, until it ends."""
        if not self.busy:
            return
        now = uptime()
        if self._deadline is None:
            self._deadline = self._since + limit
        if now >= self._deadline:
            if self._deadline == self._since + limit:
                log.database_slow(doing=self.doing, seconds=limit)
            # Cut again later: a connection that is just being opened cannot be cut.
            self._deadline = now + CUT_AGAIN
            shut_down(self._connection)

    def _run(self) -> None:
        self._connection = connections[settings.DATABASE]
        # With DEBUG Django keeps all executed statements until a request begins.
        self._connection.queries_log = deque(maxlen=0)
        while True:
            try:
                doing, call, then, failed = self._calls.get(timeout=self._keep)
            except queue.Empty:
                with contextlib.suppress(Exception):
                    self._connection.close()
                doing, call, then, failed = self._calls.get()
            sent = uptime()
            try:
                if self._is_stale:
                    self._is_stale = False
                    self._connection.close()
                self._store.limit_waiting(LOCK_TIMEOUT)
                value = call()
                result = Result(doing, then, value=value, sent=sent, received=uptime())
            except BaseException as error:
                is_locked = self._store.is_lock(error)
                if not is_locked:
                    with contextlib.suppress(Exception):
                        self._connection.close()
                result = Result(
                    doing, then, error=error, is_locked=is_locked, failed=failed, sent=sent
                )
            self._results.put((self, result))
            self._wake()


# The connections of a process to the database: opening, losing and closing them.


def is_outage(error: BaseException | None) -> bool:
    """Tell whether an error comes from the connection or the server, not from the statement."""
    # If the connection is lost while psycopg2 waits for an answer, it raises a bare
    # DatabaseError, the base class of all its errors.
    # Use type(): an exception of the application may lie about its __class__, or raise.
    kind = type(error)
    return kind is DatabaseError or issubclass(kind, (OperationalError, InterfaceError, OSError))


def bound_connecting(limit: float) -> None:
    """Set a time limit for connecting to PostgreSQL, unless the project has set one."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"].setdefault("connect_timeout", max(2, int(limit)))


def session_name(pid: int) -> str:
    """Return the name by which PostgreSQL knows the sessions of the worker of this pid."""
    return f"atpd-worker {hostname()[:40]}:{pid}"


def name_sessions() -> None:
    """Give this worker's sessions of PostgreSQL a name, unless the project has given them one."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        name = session_name(os.getpid())
        wrapper.settings_dict["OPTIONS"].setdefault("fallback_application_name", name)


def as_stores_expect() -> None:
    """Remove the project's isolation level from this process's PostgreSQL connection."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"].pop("isolation_level", None)


def close_connections() -> None:
    """Close every connection of this process, and the pools that some of them come from."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        # Django's pools of psycopg 3 have threads, which do not survive a fork.
        getattr(connection, "close_pool", lambda: None)()


def shut_down(connection: "BaseDatabaseWrapper | None") -> None:
    """Shut down the socket of a PostgreSQL connection, so that a thread that waits in it fails."""
    raw = connection.connection if connection is not None else None
    if raw is None or connection.vendor != "postgresql":  # type: ignore[union-attr]
        return  # still connecting, which connect_timeout bounds; or SQLite's busy time-out does
    try:
        with socket.socket(fileno=os.dup(raw.fileno())) as link:
            link.shutdown(socket.SHUT_RDWR)
    except Exception:
        return  # the connection is closed already
