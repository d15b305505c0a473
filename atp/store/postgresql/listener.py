"""Listening for what :mod:`.telling` says, on a connection of its own."""

import json
import secrets
import select
import time
from datetime import UTC, datetime
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from ..values import Claimed
from .driver.statements import is_pooled
from .parameters import parameters_of

# A link that has died says nothing; it is asked so often, in seconds.
CHECK_EVERY = 30.0
# After a failure the next try waits this long, in seconds.
PAUSE = 1.0


class Listener:
    """Waits for notifications. Used by one thread.

    Without a server none come, and none through a pooler, which may give the
    connection to others after each transaction: they would be told, and nobody
    here. Whoever waits polls all the same.
    """

    # Where it hears what is handed over; empty while it cannot. It hears of it only once.
    channel = ""
    keeps = False

    def __init__(self, alias):
        self._alias = alias
        self._wrapper = None
        self._handed = []
        self._notices = []
        self._checked = 0.0
        # Whether there is a pooler in between, so that nothing will ever be heard.
        self.is_deaf = False

    def wait(self, timeout):
        """Wait for up to ``timeout`` seconds; True as soon as a notification has come."""
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
            # What has come along with the answer to a check is here already.
            return self._heard() or self._wait_until(deadline)
        except (DatabaseError, InterfaceError, OSError, ValueError):
            self.close()
            time.sleep(max(0.0, min(PAUSE, deadline - time.monotonic())))
            return False

    def _wait_until(self, deadline):
        left = max(0.0, deadline - time.monotonic())
        # Unlike select, it takes descriptors of any number.
        poll = select.poll()
        with self._wrapper.wrap_database_errors:
            poll.register(self._wrapper.connection, select.POLLIN)
        return bool(poll.poll(left * 1000)) and self._heard()

    def _listen(self):
        wrapper = connections[self._alias].copy()
        # A connection that comes from a pool would have to go back to it.
        wrapper.settings_dict["OPTIONS"].pop("pool", None)
        self._wrapper = wrapper
        wrapper.ensure_connection()
        self._notices = _notices_of(wrapper.connection)
        with wrapper.cursor() as cursor:
            self.is_deaf = is_pooled(cursor)
            if not self.is_deaf:
                # Everybody may listen to any name, and inputs are not for everybody.
                lock = secrets.randbits(63)
                own = f"atp_{lock}_{secrets.token_hex(16)}"
                # Who hands over sees by the lock that this session is there.
                cursor.execute("SELECT pg_advisory_lock(%s)", [lock])
                cursor.execute(f"LISTEN atp_wake; LISTEN {own}")
                self.channel = own
        if self.is_deaf:
            self.close()
        self._checked = time.monotonic()

    def _check(self):
        with self._wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")
        self._checked = time.monotonic()

    def _heard(self):
        """Take what has come; tells whether anything has. Raises if the connection is gone."""
        raw = self._wrapper.connection
        with self._wrapper.wrap_database_errors:
            if hasattr(raw, "pgconn"):
                raw.pgconn.consume_input()
                while notice := raw.pgconn.notifies():
                    self._notices.append(notice)
            else:
                raw.poll()
        heard = bool(self._notices)
        self._handed += [text for text in map(_payload_of, self._notices) if text]
        self._notices.clear()
        return heard

    def handed(self):
        """Take what has been handed over; see :meth:`~atp.store.contract.Store.listener`."""
        texts, self._handed = self._handed, []
        return [_read(text) for text in texts]

    def close(self):
        self.channel = ""
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()


def _notices_of(raw):
    """The list that a driver's connection puts into what comes along with an answer."""
    if not hasattr(raw, "pgconn"):  # psycopg2
        return raw.notifies
    notices = []
    raw.add_notify_handler(notices.append)
    return notices


def _payload_of(notice):
    """The text that a notice carries, of either driver."""
    if hasattr(notice, "extra"):
        return notice.extra.decode()
    return notice.payload


def _read(text):
    """Read what ``enqueue_handing.sql`` tells: the daemon, and what it holds now."""
    daemon, epoch, *own, parameters = json.loads(text)
    read, _ = parameters_of(parameters)
    return UUID(daemon), Claimed(*own, read, datetime.fromtimestamp(epoch, UTC))
