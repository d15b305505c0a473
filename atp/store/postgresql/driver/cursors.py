"""Cursors of this store: they know their session, and one may be kept for reuse."""

from django.db.backends.postgresql.base import DatabaseWrapper

from ...cursors import Bare as AnyBare
from ...cursors import is_watched
from .sessions import session_of


def cursor_of(connection, *, again=False):
    """Return a context that yields a cursor for statements of this store.

    With ``again``, the driver's cursor is kept for the next such call, with the rows of its last
    answer: use it for short, frequent statements.
    """
    if is_watched(connection, DatabaseWrapper):
        return connection.cursor()
    return Bare(connection, again)


class Bare(AnyBare):
    """The driver's cursor, together with its :class:`Session`."""

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
