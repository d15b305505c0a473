"""Where the tasks of a participant are: a database of its own, a Redis, or a file of SQLite.

Each is empty when it is given, and asked past the participant how many tasks are
left in it.
"""

import os
import shutil
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager

from .catalogue import POSTGRES, REDIS, SQLITE
from .failure import Failure
from .redis import redis

START_WITHIN = 30


class Stores:
    """Gives an empty store for each measurement; what it had to start is stopped at the end."""

    def __init__(self, directory):
        self._directory = directory
        self._stack = ExitStack()
        self._redis = self._failure = None

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return self._stack.__exit__(*raised)

    def start(self, kind):
        """Have what this kind of store needs; say what it is, if it is not known. Raises Failure.

        What has failed once is not tried again.
        """
        if kind != REDIS:
            return None
        if self._failure:
            raise self._failure
        try:
            self._redis = self._redis or self._stack.enter_context(redis(self._directory))
        except Failure as failure:
            self._failure = failure
            raise
        return self._redis.told

    def empty(self, participant):
        """Return a context with an empty store of a participant's kind.

        Where there are several at a time, on Redis the next empties those before.
        """
        if participant.database:
            return self._beside_a_database(participant.key)
        if participant.store == REDIS:
            return self._redis.emptied()
        make = {POSTGRES: _postgresql, SQLITE: _sqlite}[participant.store]
        return make(self._directory, participant.key)

    @contextmanager
    def _beside_a_database(self, key):
        with self._redis.emptied() as queue, _postgresql(self._directory, key) as database:
            yield _Beside(queue, database)


class _PostgreSQL:
    def __init__(self, connection, name):
        self._connection = connection
        parts = connection.get_connection_params()
        self.place = {
            **{key: str(parts.get(key) or "") for key in ("host", "port", "user", "password")},
            "dbname": name,
        }

    def unfinished(self, query):
        return self._ask(query)[0]

    def unsaved(self):
        """Return how many rows no handler has saved."""
        return self._ask("SELECT count(*) FROM benchmarks_counter WHERE value = 0")[0]

    def settle(self):
        """Do what a server does by itself in time."""
        with self._connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")
            cursor.execute("CHECKPOINT")

    def written(self):
        """Return how many rows were inserted, updated and deleted, since there is the database.

        What a session has done counts when it has ended.
        """
        self._wait_until_left()
        return int(
            self._ask(
                "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)"
                " FROM pg_stat_user_tables"
            )[0]
        )

    def _wait_until_left(self):
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            [others] = self._ask(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
            if not others:
                return
            time.sleep(0.05)

    def _ask(self, query):
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()


@contextmanager
def _postgresql(directory, key):
    from django.db import connection

    name = f"atp_peer_{os.getpid()}_{key.replace('-', '_')}"
    drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"
    with connection.cursor() as cursor:
        cursor.execute(drop)
        cursor.execute(f"CREATE DATABASE {name}")
    own = connection.copy()
    own.settings_dict["NAME"] = name
    try:
        yield _PostgreSQL(own, name)
    finally:
        own.close()
        with connection.cursor() as cursor:
            cursor.execute(drop)


class _Beside:
    """A Redis with the tasks, and a database with the rows that their handlers save."""

    def __init__(self, queue, database):
        self.place = database.place | queue.place
        self.unfinished = queue.unfinished
        self.unsaved = database.unsaved
        self.settle = database.settle


class _SQLite:
    def __init__(self, path):
        self.place = {"path": str(path)}

    def unfinished(self, query):
        with closing(sqlite3.connect(self.place["path"], timeout=20)) as connection:
            return connection.execute(query).fetchone()[0]

    def settle(self):
        """Nothing: SQLite does nothing by itself in time."""

    def written(self):
        return None


@contextmanager
def _sqlite(directory, key):
    folder = directory / f"peer-sqlite-{key}"
    folder.mkdir()
    try:
        yield _SQLite(folder / "queue.sqlite3")
    finally:
        shutil.rmtree(folder)
