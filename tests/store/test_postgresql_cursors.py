"""The store for PostgreSQL keeps the driver's cursor for its next lone statement."""

import pytest
from django.db import ProgrammingError, connection, connections

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL"),
    pytest.mark.django_db(transaction=True),
]
if connection.vendor == "postgresql":
    from atp.store.postgresql.driver.cursors import cursor_of


def own():
    """The connection itself, which ``django.db.connection`` stands for."""
    return connections[connection.alias]


@pytest.fixture(autouse=True)
def _connected():
    own().ensure_connection()


def drivers(again=True):
    """Return the driver's cursor that a statement is executed with."""
    with cursor_of(own(), again=again) as cursor:
        return cursor._cursor


def test_the_drivers_cursor_is_kept_where_it_is_used_again():
    kept = drivers()
    assert drivers() is kept
    assert drivers(again=False) is not kept
    with cursor_of(own(), again=True) as outer:
        assert outer._cursor is kept
        outer.execute("SELECT 1")
        assert drivers() is not kept
        assert outer.fetchone() == (1,)
    connection.close()
    own().ensure_connection()
    assert drivers() is not kept


def test_one_that_the_database_refused_is_not_kept():
    kept = drivers()
    with pytest.raises(ProgrammingError), cursor_of(own(), again=True) as cursor:
        cursor.execute("SELECT nothing")
    assert drivers() is not kept


def test_a_driver_that_is_traced_makes_another():
    kept = drivers()

    class Traced(own().connection.cursor_factory or type(kept)):
        pass

    own().connection.cursor_factory = Traced
    assert type(drivers()) is Traced
    connection.close()
