"""Making a connection to SQLite as good as new: see :mod:`..renewal`.

SQLite cannot reset a connection. So one statement looks at it: a connection that a handler has
changed is not as good as new, and must be closed.

That statement takes longer than many a handler. But SQLite calls an authorizer for everything that
a statement will do, when it prepares it. If a connection has only prepared statements that read
and write rows, the look is not needed.
"""

import contextlib
import sqlite3
from itertools import count
from operator import attrgetter

# The pragmas that belong to the connection, not to the file.
_PRAGMAS = (
    *("automatic_index", "busy_timeout", "cache_size", "cache_spill", "cell_size_check"),
    *("defer_foreign_keys", "foreign_keys", "fullfsync", "ignore_check_constraints"),
    *("legacy_alter_table", "locking_mode", "query_only", "read_uncommitted"),
    *("recursive_triggers", "reverse_unordered_selects", "secure_delete", "synchronous"),
    *("temp_store", "trusted_schema", "writable_schema"),
)
_LOOKS = (
    "(SELECT count(*) FROM temp.sqlite_master)",
    "(SELECT group_concat(name) FROM pragma_database_list WHERE name <> 'temp')",
    "'a' LIKE 'A'",
    *(f"(SELECT * FROM pragma_{name})" for name in _PRAGMAS),  # noqa: S608 (those above)
)
_LOOK = f"SELECT {', '.join(_LOOKS)}"

# Actions that change no connection, except for calls of the functions below.
_HARMLESS = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in (
        *("SELECT", "READ", "INSERT", "UPDATE", "DELETE", "FUNCTION", "RECURSIVE"),
        *("TRANSACTION", "SAVEPOINT"),
    )
)
_HARMFUL = frozenset({"load_extension", "fts3_tokenizer"})

_of_driver = attrgetter("row_factory", "text_factory", "isolation_level")


class _Watch:
    """The authorizer of one connection, which allows everything and notes what changes it.

    A prepared statement may be executed again without a call of the authorizer. So a connection
    that was changed once is looked at each time.
    """

    def __init__(self):
        self.prepared = 0
        self.is_touched = False

    def __call__(self, action, first, second, *where):
        self.prepared += 1
        if action not in _HARMLESS or (action == sqlite3.SQLITE_FUNCTION and second in _HARMFUL):
            self.is_touched = True
        return sqlite3.SQLITE_OK

    def is_asked(self, driver):
        """Return whether this is still the authorizer: a new statement must call it."""
        before = self.prepared
        driver.execute(f"SELECT {next(_NEW)}")
        return self.prepared > before


# Numbers that make each statement new.
_NEW = count()


def traits(driver):
    own, looked, watch = _of_driver(driver), _look(driver), _Watch()
    driver.set_authorizer(watch)
    return own, looked, watch


def has_transaction(driver):
    return driver.in_transaction


def renew(connection, traits_of_new):
    driver = connection.connection
    if driver.in_transaction:
        return False
    driver.set_progress_handler(None, 0)
    driver.set_trace_callback(None)
    own, looked, watch = traits_of_new
    if _of_driver(driver) != own or not watch.is_asked(driver):
        return False
    return not watch.is_touched or _look(driver) == looked


def _look(driver):
    return tuple(driver.execute(_LOOK).fetchone())


def is_alive(driver, seconds):
    return True


@contextlib.contextmanager
def bound(driver):
    yield
