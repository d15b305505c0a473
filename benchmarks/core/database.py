"""The database that a benchmark runs on: fresh, and with the server's own durability."""

import os
from contextlib import contextmanager

KINDS = ("postgres", "sqlite")
# Says to the settings of the benchmarks which database is used.
_VARIABLE = "BENCHMARK_DATABASE"


class ChoiceError(Exception):
    """The database that is asked for cannot be used; the message says why."""


@contextmanager
def server(directory, kind):
    """Have a database of this kind, and its URL in the environment.

    What DATABASE_URL names is used as it is; else PostgreSQL is started in
    ``directory``. Without ``kind`` it is what DATABASE_URL says, or PostgreSQL.
    Raises ChoiceError.
    """
    given = os.environ.get("DATABASE_URL", "")
    if given:
        if kind and given.startswith("sqlite") != (kind == "sqlite"):
            raise ChoiceError(f"DATABASE_URL names another database than --database {kind}.")
        yield
    elif kind == "sqlite":
        yield
    else:
        from demo_project.show import DemoError
        from demo_project.show.embedded import postgresql

        try:
            with postgresql(directory) as url:
                os.environ["DATABASE_URL"] = url
                try:
                    yield
                finally:
                    del os.environ["DATABASE_URL"]
        except DemoError as error:
            raise ChoiceError(f"There is no PostgreSQL: {error}") from error


@contextmanager
def fresh_database(directory):
    """Make an empty test database with all tables; give the connection to it.

    What is started meanwhile, with the settings of the benchmarks, finds it too.
    """
    from django.db import connection

    # A name of its own: tests may be going on beside it. And on SQLite a file,
    # since in memory nothing is durable.
    name = f"atp_bench_{os.getpid()}"
    if connection.vendor == "sqlite":
        name = str(directory / f"{name}.sqlite3")
    connection.settings_dict["TEST"]["NAME"] = name
    own = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        with used(connection, name):
            yield connection
    finally:
        connection.creation.destroy_test_db(own, verbosity=0)


@contextmanager
def clone(connection, suffix):
    """Have a copy of the database that is used, and give its name."""
    connection.close()
    connection.creation.clone_test_db(suffix, verbosity=0)
    try:
        yield connection.creation.get_test_db_clone_settings(suffix)["NAME"]
    finally:
        _disconnect(connection, connection.creation.get_test_db_clone_settings(suffix)["NAME"])
        connection.creation.destroy_test_db(verbosity=0, suffix=suffix)


def _disconnect(connection, name):
    """Let go of a database whoever is still connected to it, as a daemon that was killed is."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                [name],
            )


@contextmanager
def used(connection, name):
    """Use a database of this name, here and in what is started meanwhile."""
    before = connection.settings_dict["NAME"], os.environ.get(_VARIABLE, "")
    _use(connection, name, name)
    try:
        yield
    finally:
        _use(connection, *before)


def _use(connection, name, told):
    connection.close()
    connection.settings_dict["NAME"] = name
    os.environ[_VARIABLE] = told


def vacuum(connection):
    """Do what a server does by itself in time: vacuum, and look at how values are spread.

    SQLite does no such thing, so it has to do without.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")
            cursor.execute("CHECKPOINT")


def set_sequence(connection, model):
    """Let the next row that is enqueued have the next key."""
    from django.core.management.color import no_style

    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [model]):
            cursor.execute(statement)
