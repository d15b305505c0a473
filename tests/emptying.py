"""Empties the database after a test that has committed, in less time than Django takes.

Only tables that have rows are emptied, and rows that migrations have made are put back. On
PostgreSQL only a superuser may switch off the triggers of foreign keys; others get Django's way.
"""

from django.db import connections, transaction
from django.test import TransactionTestCase

COPY = "pristine_{}"
# A table of PostgreSQL that is larger than that, in bytes, is vacuumed: the next test is not to
# step over what this one has left.
LARGE = 256 * 1024

# The names of the tables by alias, each with whether it had rows in the beginning.
_tables: dict[str, dict[str, bool]] = {}


def install():
    """Have Django's TransactionTestCase, and pytest-django with it, empty them in this way."""
    djangos = TransactionTestCase._fixture_teardown

    def teardown(self):
        aliases = self._databases_names(include_mirrors=False)
        if self.available_apps is None and all(alias in _tables for alias in aliases):
            for alias in aliases:
                put_back(alias)
        else:
            djangos(self)

    TransactionTestCase._fixture_teardown = teardown


def remember(alias="default"):
    """Keep the rows that the tables of this database have now: what a migration has made."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql" and not _is_superuser(cursor):
            return
        tables = {}
        for table in connection.introspection.django_table_names(only_existing=True):
            cursor.execute(f'SELECT EXISTS (SELECT 1 FROM "{table}")')
            tables[table] = bool(cursor.fetchone()[0])
            if tables[table]:
                cursor.execute(f'CREATE TABLE "{COPY.format(table)}" AS SELECT * FROM "{table}"')
    _tables[alias] = tables


def put_back(alias="default"):
    """Have each table of this database hold the rows that were remembered, and no others."""
    connection, tables = connections[alias], _tables[alias]
    with connection.cursor() as cursor:
        touched = [table for table, had_rows in tables.items() if had_rows]
        touched += _with_rows(cursor, [table for table in tables if table not in touched])
        with transaction.atomic(alias):
            if connection.vendor == "postgresql":
                cursor.execute("SET LOCAL session_replication_role = replica")
            for table in touched:
                cursor.execute(f'DELETE FROM "{table}"')
                if tables[table]:
                    copy = COPY.format(table)
                    cursor.execute(f'INSERT INTO "{table}" SELECT * FROM "{copy}"')
        if connection.vendor == "postgresql":
            # Also one of earlier, whose dead rows somebody's snapshot has kept.
            for table in _large(cursor, list(tables)):
                cursor.execute(f'VACUUM "{table}"')


def _is_superuser(cursor):
    cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    return cursor.fetchone()[0]


def _with_rows(cursor, tables):
    looks = [f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM \"{table}\")" for table in tables]
    cursor.execute(" UNION ALL ".join(looks))
    return [table for (table,) in cursor.fetchall()]


def _large(cursor, tables):
    cursor.execute(
        "SELECT relname FROM pg_class WHERE oid = ANY(%s::regclass[]) AND pg_table_size(oid) > %s",
        [tables, LARGE],
    )
    return [table for (table,) in cursor.fetchall()]
