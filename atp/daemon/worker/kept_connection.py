"""A connection that a worker keeps from task to task, and lends to each as good as new."""

import contextlib
import os
import time

from ...store.renewal import renewal_of

# An attempt that took longer than this, in seconds, may come back with a dead link.
LONG = 5.0


class KeptConnection:
    """The driver's connection that is kept while one of Django's connections is closed.

    When Django wants to connect it is given the kept one, and goes on as with a new
    connection: a project's own receivers are called for this one too.
    """

    def __init__(self, connection, renewal):
        self._connection = connection
        self._renewal = renewal
        self._open = connection.get_new_connection
        self._pid = os.getpid()
        # The driver's connection while it rests, since when, and how it was opened.
        self._driver, self._since = None, 0.0
        self._parameters = _without_password(connection.get_connection_params())
        # The traits that the driver's connection in use had when it was new.
        self._traits, self._traits_of = None, None
        connection.get_new_connection = self._connect

    @classmethod
    def of(cls, connection):
        """Return that of a connection, which has one at most; None if its vendor has none."""
        found = getattr(vars(connection).get("get_new_connection"), "__self__", None)
        if isinstance(found, cls):
            return found
        renewal = renewal_of(connection)
        return renewal and cls(connection, renewal)

    @property
    def rests(self):
        """Whether there is a connection that nobody uses."""
        return self._driver is not None

    def rested(self):
        """For how long nobody has used it, in seconds."""
        return time.monotonic() - self._since

    def opened(self):
        """Take note that Django has connected, and done what it does with a new connection."""
        # Code that closes old connections means those of a web request.
        self._connection.close_at = None
        driver = self._connection.connection
        if self._traits_of is not driver:
            self._traits, self._traits_of = self._renewal.traits(driver), driver

    def has_transaction(self):
        """Whether a transaction is open."""
        connection = self._connection
        if connection.in_atomic_block:
            return True
        driver = connection.connection
        return driver is not None and self._renewal.has_transaction(driver)

    def put_back(self, took):
        """Keep what was used, for the attempt that ``took`` so many seconds; or close it."""
        if self._renew(took):
            # A project with a close() of its own learns of it as of any other.
            self._connection._close = self._rest
            try:
                self._connection.close()
            finally:
                del self._connection._close
        else:
            self._close()

    def _renew(self, took):
        connection = self._connection
        if connection.in_atomic_block or connection.connection is not self._traits_of:
            return False
        limit = contextlib.nullcontext()
        if took > LONG:
            limit = self._renewal.bound(connection.connection)
        try:
            with limit:
                return self._renewal.renew(connection, self._traits)
        except Exception:  # whatever it is, a new one has not got it
            return False

    def _rest(self):
        self._driver, self._since = self._connection.connection, time.monotonic()

    def let_go(self):
        """Close what rests."""
        if self._driver is None:
            return
        self._connection.connection, self._driver = self._driver, None
        self._close()

    def _close(self):
        # Without this Django keeps the closed connection for the end of the block.
        self._connection.in_atomic_block = False
        self._traits = self._traits_of = None
        with contextlib.suppress(Exception):
            self._connection.close()
        self._connection.connection = None

    def _connect(self, parameters):
        if os.getpid() != self._pid:
            return self._open(parameters)  # a copy of the process: what rests is not its own
        if self._driver is not None:
            same = _without_password(parameters) == self._parameters
            if same and self._renewal.is_alive(self._driver, self.rested()):
                driver, self._driver = self._driver, None
                return driver
            self.let_go()
        # A password may change: the connection stays the same.
        self._parameters = _without_password(parameters)
        return self._open(parameters)


def _without_password(parameters):
    return {name: value for name, value in parameters.items() if name != "password"}
