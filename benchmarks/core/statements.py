"""The statements that a PostgreSQL is sent, counted in its own log."""

import re
from collections import Counter
from contextlib import contextmanager

# The line that begins a statement; BEGIN and COMMIT are statements too. Before it
# the pid of the session stands in brackets, by the server's default.
_LINE = re.compile(rb"^.*\[(\d+)\].*LOG:  (?:statement|execute [^:]*): ", re.MULTILINE)


class Statements:
    """How many statements each session has sent since :meth:`forget`.

    It looks through a session of its own, which is not counted.
    """

    def __init__(self, cursor, path):
        self._cursor = cursor
        self._path = path
        self._own = self._asked("SELECT pg_backend_pid()")
        self.forget()

    def forget(self):
        """Count from here on."""
        self._from = self._size()

    def by_pid(self):
        """Return how many, by the pid of the session in the server."""
        size = self._size() - self._from
        log = self._asked("SELECT pg_read_binary_file(%s, %s, %s)", self._path, self._from, size)
        sent = Counter(int(pid) for pid in _LINE.findall(bytes(log)))
        del sent[self._own]
        return sent

    def _size(self):
        return self._asked("SELECT size FROM pg_stat_file(%s)", self._path)

    def _asked(self, statement, *parameters):
        self._cursor.execute(statement, parameters)
        return self._cursor.fetchone()[0]


@contextmanager
def counted(connection):
    """Count what sessions of this database send that begin in the block; give :class:`Statements`.

    Give None where the server does not let us read its log.
    """
    path = _log_of(connection)
    if path is None:
        yield None
        return
    own = connection.ops.quote_name(connection.settings_dict["NAME"])
    apart = connection.copy()
    with apart.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {own} SET log_statement = 'all'")
        try:
            yield Statements(cursor, path)
        finally:
            cursor.execute(f"ALTER DATABASE {own} RESET log_statement")
            apart.close()


def _log_of(connection):
    """Return where the server's log is, as it says itself; None if it cannot be read."""
    from django.db import DatabaseError

    if connection.vendor != "postgresql":
        return None
    try:
        with connection.cursor() as cursor:
            # Where nothing collects the log, it goes where pg_ctl was told: next to the data.
            cursor.execute("SELECT coalesce(pg_current_logfile(), 'log')")
            [path] = cursor.fetchone()
            cursor.execute("SELECT size FROM pg_stat_file(%s, true)", [path])
            return path if cursor.fetchone()[0] is not None else None
    except DatabaseError:
        return None
