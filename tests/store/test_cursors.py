"""Whoever looks at Django's cursors sees what a store executes (G11)."""

import asyncio
from itertools import product
from unittest import mock

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, Error, connection, connections, transaction, utils
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext

from atp.models import Instance

from ..app import tasks
from ..helpers import Thread
from .internals import cursor_of

pytestmark = pytest.mark.django_db(transaction=True)
# What is no column.
REFUSED = utils.ProgrammingError if connection.vendor == "postgresql" else utils.OperationalError


def enqueue():
    return tasks.echo.enqueue(value=1)


def own():
    """The connection itself, which ``django.db.connection`` stands for."""
    return connections[connection.alias]


@pytest.fixture(autouse=True)
def _connected():
    enqueue()


def is_bare():
    with cursor_of(own()) as cursor:
        return not isinstance(cursor, CursorWrapper)


def test_a_wrapper_of_execution_and_the_log_of_queries_see_it(settings):
    seen = []

    def see(execute, sql, parameters, many, context):
        seen.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(see):
        enqueue()
    assert any("atp_enqueue" in sql or "INTO atp_instance" in sql for sql in seen)
    with CaptureQueriesContext(connection) as captured:
        enqueue()
    assert sum("INTO atp_instance" in query["sql"] for query in captured) == 1
    assert is_bare()
    settings.DEBUG = True
    assert not is_bare()


def test_what_a_tool_has_put_in_the_place_of_djangos_is_called():
    """In its classes, or in one connection."""
    places = [(CursorWrapper, "execute"), (CursorWrapper, "_execute"), (own(), "create_cursor")]
    names = "cursor", "make_cursor", "ensure_connection"
    for owner, name in [*places, *product((BaseDatabaseWrapper, own()), names)]:
        djangos = getattr(owner, name)
        with mock.patch.object(owner, name, autospec=True, side_effect=djangos) as traced:
            enqueue()
        assert traced.called, (owner, name)


def test_a_backend_made_from_djangos_is_asked_itself(monkeypatch):
    class Own(type(own())):
        pass

    monkeypatch.setattr(own(), "__class__", Own)
    assert not is_bare()


def test_an_event_loop_is_refused_unless_django_allows_it(monkeypatch):
    async def inside():
        enqueue()
        # It may have one of its own there.
        connection.close()

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(inside())
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    asyncio.run(inside())


def test_another_thread_is_refused():
    used = own()

    def use():
        with cursor_of(used):
            pass

    with pytest.raises(DatabaseError, match="created in thread"):
        Thread(use).result()


def test_a_broken_transaction_is_refused():
    before = Instance.objects.count()
    with transaction.atomic():
        with pytest.raises(REFUSED), transaction.atomic(savepoint=False):
            connection.cursor().execute("SELECT nothing")
        with pytest.raises(transaction.TransactionManagementError):
            enqueue()
        transaction.set_rollback(True)
    assert Instance.objects.count() == before


def test_an_error_or_a_lost_connection_is_djangos():
    with pytest.raises(REFUSED) as caught, cursor_of(own()) as cursor:
        cursor.execute("SELECT nothing")
    assert isinstance(caught.value.__cause__, own().Database.Error)
    assert own().errors_occurred
    own().connection.close()
    with pytest.raises(Error):
        enqueue()
    connection.close()
    enqueue()
