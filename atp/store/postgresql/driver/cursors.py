"""Cursors of this store: one may be kept for the next statement, and knows its session."""

from django.db.backends.postgresql.base import DatabaseWrapper

from ...cursors import Bare as AnyBare
from ...cursors import is_watched
from .sessions import session_of


def cursor_of(connection, *, again=False):
    """Return a cursor for statements of this store, as a context.

    With ``again`` the driver's is kept for the next such, and with it what it was
    answered last: for what is short and often.
    """
    if is_watched(connection, DatabaseWrapper):
        return connection.cursor()
    return Bare(connection, again)


class Bare(AnyBare):
    """The driver's cursor, and what is known of its session."""

    __slots__ = ("_again", "session")

    def __init__(self, connection, again=False):
        self.db = connection
        self._again = again

    def __exit__(self, kind, error, traceback):
        if kind is None and self._again:
            self.session.keep_cursor(self._cursor)
        else:
            super().__exit__(kind, error, traceback)

    def _open(self, driver):
        self.session = session_of(self.db)
        return (self._again and self.session.take_cursor()) or driver.cursor()
