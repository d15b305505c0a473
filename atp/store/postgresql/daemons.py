"""A daemon's regular queries; NOTIFY and LISTEN."""

import json
import secrets
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ...commands import Mode
from ...exceptions import LeaseLost
from ..common.control import Closed
from ..common.control import Gates as ORMGates
from ..common.daemons import Daemons as ORMDaemons
from ..common.turns import most_steps
from ..facts import NO_FACTS, NO_MISFITS, EngineFacts, Misfits, Outlook, Renewal
from ..values import Attempt
from .claims import parameters_of
from .statements import array, cursor_of, execute, is_pooled, texts

if TYPE_CHECKING:
    from . import PostgreSQLStore

# A daemon's regular queries, one statement each.


class Gates(ORMGates):
    """Finds due lanes by one statement: see `due_lanes.sql`."""

    store: "PostgreSQLStore"

    def due_lanes(
        self, types: Sequence[int], closed: Closed, time: datetime, limit: int
    ) -> list[tuple[int, str, int]]:
        parameters = {
            "types": array(types),
            "closed_types": array([type for type, _ in closed.lanes]),
            "closed": texts([collection for _, collection in closed.lanes]),
            "time": time,
            "limit": limit,
            "most": most_steps(len(types)),
        }
        with cursor_of(self.store.connection) as cursor:
            # Pages ask this too, but rarely.
            execute(cursor, "due_lanes", parameters, prepared=False)
            return cursor.fetchall()


class Daemons(ORMDaemons):
    """Renews a lease, and looks for work, by one statement each."""

    store: "PostgreSQLStore"

    def renew(
        self,
        daemon: UUID,
        *,
        lease: float,
        workers: Sequence[Any] = (),
        idle: bool = False,
        mode: Mode = Mode.RUNNING,
        channel: str = "",
        misfits: Misfits = NO_MISFITS,
        engine: EngineFacts = NO_FACTS,
    ) -> Renewal:
        own = {"daemon": str(daemon), "lease": lease}
        said = {"workers": json.dumps(list(workers)), "idle": idle, "channel": channel}
        said |= {"misfits": json.dumps(dict(misfits)), "engine": json.dumps(dict(engine))}
        try:
            return self._renewed("renew", own | said | {"mode": str(mode)})
        except DatabaseError as error:
            if not self.store.is_lock(error):
                raise
        renewal = self._renewed("renew_spare", own)
        return replace(renewal, is_spare=True)

    def _renewed(self, statement: str, parameters: Mapping[str, Any]) -> Renewal:
        with cursor_of(self.store.connection) as cursor:
            execute(cursor, statement, parameters)
            renewed = cursor.fetchone()
        if renewed is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        epoch, request = renewed
        return Renewal(time=datetime.fromtimestamp(epoch, UTC), request=request)

    def outlook(self, types: Sequence[str], *, daemon: UUID | None = None) -> Outlook:
        with cursor_of(self.store.connection) as cursor:
            who = None if daemon is None else str(daemon)
            parameters = {"types": list(types), "daemon": who, "most": most_steps(len(types))}
            execute(cursor, "outlook", parameters)
            found = cursor.fetchone()
        due, late, lost, request, limited, opens, drops, is_cut, planned, graphs, owed = found
        limited = [
            ((type, collection), due) for type, collection, due in json.loads(limited or "[]")
        ]
        return Outlook(
            due=0.0 if is_cut else self.store.limits.due_in(due, limited, opens),
            late=late,
            lost=lost,
            request=request,
            drops=drops and self.store.gates.drops(),
            planned=planned,
            graphs=graphs,
            owed=owed,
        )


# Listening for the notifications of `notify.sql`, on a connection of its own.

# In seconds: how often the link is checked, since a dead link says nothing.
CHECK_EVERY = 30.0
# In seconds: how long to wait after a failure before the next try.
PAUSE = 1.0


class Listener:
    """Waits for notifications; used by one thread.

    None come while the server is away. None come through a pooler either: it may give the
    connection to others after each transaction, and they would be notified. Callers poll all the
    same.
    """

    # The channel of Tasks that are handed over; empty while there is none. Each is heard once.
    channel = ""
    keeps = False

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._wrapper: Any = None
        self._handed: list[str] = []
        self._notices: list[Any] = []
        self._checked = 0.0
        # Whether there is a pooler, so that nothing will ever be heard.
        self.is_deaf = False

    def wait(self, timeout: float) -> bool:
        """Wait for up to ``timeout`` seconds; returns True as soon as a notification has come."""
        deadline = time.monotonic() + timeout
        if self.is_deaf:
            time.sleep(timeout)
            return False
        try:
            if self._wrapper is None:
                self._listen()
                return True  # what came before nobody has heard
            if time.monotonic() >= self._checked + CHECK_EVERY:
                self._check()
            # Notifications may have come with the answer to the check.
            return self._heard() or self._wait_until(deadline)
        except (DatabaseError, InterfaceError, OSError, ValueError):
            self.close()
            time.sleep(max(0.0, min(PAUSE, deadline - time.monotonic())))
            return False

    def _wait_until(self, deadline: float) -> bool:
        left = max(0.0, deadline - time.monotonic())
        # poll() takes descriptors of any number, select() does not.
        poll = select.poll()
        with self._wrapper.wrap_database_errors:
            poll.register(self._wrapper.connection, select.POLLIN)
        return bool(poll.poll(left * 1000)) and self._heard()

    def _listen(self) -> None:
        wrapper = connections[self._alias].copy()
        # A pooled connection would have to be returned to its pool.
        wrapper.settings_dict["OPTIONS"].pop("pool", None)
        self._wrapper = wrapper
        wrapper.ensure_connection()
        self._notices = _notices_of(wrapper.connection)
        with wrapper.cursor() as cursor:
            self.is_deaf = is_pooled(cursor)
            if not self.is_deaf:
                # Any session may listen to a name that it knows. Inputs are secret, so the name is.
                lock = secrets.randbits(63)
                own = f"atp_{lock}_{secrets.token_hex(16)}"
                # The session that hands a Task over sees by this lock that the listener is alive.
                cursor.execute("SELECT pg_advisory_lock(%s)", [lock])
                cursor.execute(f"LISTEN atp_wake; LISTEN {own}")
                self.channel = own
        if self.is_deaf:
            self.close()
        self._checked = time.monotonic()

    @property
    def link(self) -> BaseDatabaseWrapper | None:
        """Django's connection, or None: to be cut if a wait hangs in a dead link."""
        return self._wrapper

    def _check(self) -> None:
        with self._wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")
        self._checked = time.monotonic()

    def _heard(self) -> bool:
        """Take the notifications that have come; returns whether there are any.

        Raises if the connection is gone.
        """
        raw = self._wrapper.connection
        with self._wrapper.wrap_database_errors:
            if hasattr(raw, "pgconn"):
                raw.pgconn.consume_input()
                while notice := raw.pgconn.notifies():
                    self._notices.append(notice)
            else:
                raw.poll()
        heard = bool(self._notices)
        # Any session may notify of anything, except through a channel whose name is secret.
        told = [_parts_of(notice) for notice in self._notices]
        self._handed += [text for channel, text in told if channel == self.channel]
        self._notices.clear()
        return heard

    def handed(self) -> list[tuple[UUID, Attempt]]:
        """Take the Tasks handed over so far; see :meth:`~atp.store.protocol.Store.listener`."""
        texts, self._handed = self._handed, []
        return [_read(text) for text in texts]

    def close(self) -> None:
        self.channel = ""
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()


def _notices_of(raw: Any) -> list[Any]:
    """Return the list to which the driver adds notifications that come with an answer."""
    if not hasattr(raw, "pgconn"):  # psycopg2
        return raw.notifies
    notices: list[Any] = []
    raw.add_notify_handler(notices.append)
    return notices


def _parts_of(notice: Any) -> tuple[str, str]:
    """Return the channel and the text of a notification, of either driver."""
    if hasattr(notice, "extra"):
        return notice.relname.decode(), notice.extra.decode()
    return notice.channel, notice.payload


def _read(text: str) -> tuple[UUID, Attempt]:
    """Return the daemon's uuid and the :class:`Attempt` of a notice by ``enqueue_handing.sql``."""
    daemon, epoch, *own, parameters = json.loads(text)
    read, _ = parameters_of(parameters)
    return UUID(daemon), Attempt(  # type: ignore[call-arg]
        *own, read, datetime.fromtimestamp(epoch, UTC)
    )
