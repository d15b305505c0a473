"""A worker's database connections between one Task and the next."""

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Self

from django.db import reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ...conf import settings
from ...store.common.base import renewal_of
from ..processes import uptime

# A worker's database connections, and their reset between one task and the next.


class Connections:
    """The connections that this thread, and no other, opens from now on."""

    def __init__(self) -> None:
        # The KeptConnection of each Django connection; None if its vendor has none.
        self._opened: dict[BaseDatabaseWrapper, KeptConnection | None] = {}
        self._thread = threading.get_ident()
        connection_created.connect(self._add)

    def _add(self, *, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if connection not in self._opened:
            self._opened[connection] = KeptConnection.of(connection)
        kept = self._opened[connection]
        if kept is not None:
            kept.opened()

    def with_transaction(self, *, but: str | None = None) -> list[str]:
        """Return the aliases of the connections with an open transaction, without ``but``."""
        if not self._opened:
            return []
        return [
            connection.alias
            for connection, kept in self._opened.items()
            if connection.alias != but
            and (connection.in_atomic_block if kept is None else kept.has_transaction())
        ]

    def put_back(self, began: float | None = None) -> None:
        """Reset the connections for the next attempt; the last one began at uptime ``began``.

        A connection that cannot be reset, or was left inside a transaction, is closed.
        """
        if not self._opened:
            return
        reset_queries()
        took = 0.0 if began is None else uptime() - began
        keep = settings.KEEP_CONNECTIONS
        for connection, kept in self._opened.items():
            if connection.connection is None:
                if kept is not None and kept.rests and kept.rested() > keep:
                    kept.let_go()
            elif kept is None:
                _refresh(connection)
            else:
                kept.put_back(took)
                if not keep:
                    kept.let_go()

    def rest(self) -> bool:
        """Tell whether any kept connection is unused."""
        return any(kept is not None and kept.rests for kept in self._opened.values())

    def let_go(self) -> None:
        """Close the kept connections that are unused."""
        for kept in self._opened.values():
            if kept is not None:
                kept.let_go()


def _refresh(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that is old, has failed or is in a transaction, as after a request."""
    if connection.in_atomic_block or connection.needs_rollback:
        leave_blocks(connection)
        connection.close()
    else:
        connection.close_if_unusable_or_obsolete()


# A database connection that a worker keeps from task to task, and resets for each.

# After an attempt that took longer than this, in seconds, the connection may be dead.
LONG = 5.0


class KeptConnection:
    """The driver's connection that is kept while Django's connection is closed.

    When Django connects again, it gets the kept one and treats it as a new connection: it
    also calls the project's receivers of ``connection_created``.
    """

    def __init__(self, connection: Any, renewal: ModuleType) -> None:
        self._connection = connection
        self._renewal = renewal
        self._open = connection.get_new_connection
        self._pid = os.getpid()
        # The driver's connection while it is unused, since when, and its parameters.
        self._driver: Any = None
        self._since = 0.0
        self._parameters = _without_password(connection.get_connection_params())
        # The traits that the driver's connection in use had when it was new.
        self._traits: Any = None
        self._traits_of: Any = None
        connection.get_new_connection = self._connect

    @classmethod
    def of(cls, connection: BaseDatabaseWrapper) -> Self | None:
        """Return the only KeptConnection of a connection; None if its vendor supports none."""
        found = getattr(vars(connection).get("get_new_connection"), "__self__", None)
        if isinstance(found, cls):
            return found
        renewal: Any = renewal_of(connection)
        return renewal and cls(connection, renewal)

    @property
    def rests(self) -> bool:
        """Whether the database driver's connection stays open while Django has none."""
        return self._driver is not None

    def rested(self) -> float:
        """Return the time for which the kept connection has been unused, in seconds."""
        return time.monotonic() - self._since

    def opened(self) -> None:
        """Note that Django has connected and initialized the connection."""
        # Code that closes old connections is meant for web requests: disable it.
        self._connection.close_at = None
        driver = self._connection.connection
        if self._traits_of is not driver:
            self._traits, self._traits_of = self._renewal.traits(driver), driver

    def has_transaction(self) -> bool:
        """Tell whether a transaction is open."""
        connection = self._connection
        if connection.in_atomic_block:
            return True
        driver = connection.connection
        return driver is not None and self._renewal.has_transaction(driver)

    def put_back(self, took: float) -> None:
        """Reset and keep the connection after an attempt that ``took`` seconds, or close it."""
        if self._renew(took):
            # Call close() with a replaced _close(), so that a project's own close() runs too.
            self._connection._close = self._rest
            try:
                self._connection.close()
            finally:
                del self._connection._close
        else:
            self._close()

    def _renew(self, took: float) -> bool:
        connection = self._connection
        if connection.in_atomic_block or connection.connection is not self._traits_of:
            return False
        limit = contextlib.nullcontext()
        if took > LONG:
            limit = self._renewal.bound(connection.connection)
        try:
            with limit:
                return self._renewal.renew(connection, self._traits)
        except Exception:  # whatever is wrong, a new connection will not have it
            return False

    def _rest(self) -> None:
        self._driver, self._since = self._connection.connection, time.monotonic()

    def let_go(self) -> None:
        """Close the unused connection, if any."""
        if self._driver is None:
            return
        self._connection.connection, self._driver = self._driver, None
        self._close()

    def _close(self) -> None:
        leave_blocks(self._connection)
        self._traits = self._traits_of = None
        with contextlib.suppress(Exception):
            self._connection.close()
        self._connection.connection = None

    def _connect(self, parameters: Mapping[str, Any]) -> Any:
        if os.getpid() != self._pid:
            return self._open(parameters)  # a fork: the kept connection belongs to its parent
        if self._driver is not None:
            same = _without_password(parameters) == self._parameters
            if same and self._renewal.is_alive(self._driver, self.rested()):
                driver, self._driver = self._driver, None
                return driver
            self.let_go()
        # A password may change: the connection stays the same.
        self._parameters = _without_password(parameters)
        return self._open(parameters)


def leave_blocks(connection: BaseDatabaseWrapper) -> None:
    """Have Django forget the atomic blocks that a handler has left open.

    Otherwise it would keep the closed connection until the end of the block, and refuse the next
    block that is durable: it looks for others before it connects.
    """
    connection.in_atomic_block = False
    connection.atomic_blocks = []


def _without_password(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name != "password"}
