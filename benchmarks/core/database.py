"""The database that a benchmark runs on: fresh, and with the server's own durability."""

import os
from contextlib import contextmanager

KINDS = ("postgres", "sqlite")


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
    """Make an empty test database with all tables; give the connection to it."""
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
        yield connection
    finally:
        connection.creation.destroy_test_db(own, verbosity=0)
