"""Whoever looks at Django's cursors sees what a store executes (G11)."""

import asyncio
import threading

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import (
    DatabaseError,
    Error,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext

from atp.models import Instance

from ..app import tasks

pytestmark = pytest.mark.django_db(transaction=True)
if connection.vendor == "postgresql":
    from atp.store.postgresql.driver.cursors import cursor_of
else:
    from atp.store.sqlite.driver.cursors import cursor_of

# What is no column.
REFUSED = ProgrammingError if connection.vendor == "postgresql" else OperationalError


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


def test_where_nobody_looks_it_is_the_drivers():
    assert is_bare()


def test_a_wrapper_of_execution_sees_it():
    seen = []

    def see(execute, sql, parameters, many, context):
        seen.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(see):
        enqueue()
    assert any("atp_enqueue" in sql or "INTO atp_instance" in sql for sql in seen)
    assert is_bare()


def test_the_log_of_queries_has_it(settings):
    with CaptureQueriesContext(connection) as captured:
        enqueue()
    assert sum("INTO atp_instance" in query["sql"] for query in captured) == 1
    settings.DEBUG = True
    assert not is_bare()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (CursorWrapper, "execute"),
        (CursorWrapper, "_execute"),
        (BaseDatabaseWrapper, "cursor"),
        (BaseDatabaseWrapper, "make_cursor"),
        (BaseDatabaseWrapper, "ensure_connection"),
    ],
)
def test_what_a_tool_has_put_in_the_place_of_djangos_is_called(monkeypatch, owner, name):
    calls = []
    djangos = getattr(owner, name)

    def traced(*args, **kwargs):
        calls.append(args)
        return djangos(*args, **kwargs)

    monkeypatch.setattr(owner, name, traced)
    enqueue()
    assert calls


@pytest.mark.parametrize("name", ["cursor", "create_cursor", "make_cursor", "ensure_connection"])
def test_so_is_what_it_has_put_into_one_connection(monkeypatch, name):
    calls = []
    djangos = getattr(own(), name)

    def traced(*args, **kwargs):
        calls.append(args)
        return djangos(*args, **kwargs)

    monkeypatch.setattr(own(), name, traced)
    enqueue()
    assert calls


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
    used, raised = own(), []

    def use():
        try:
            with cursor_of(used):
                pass
        except DatabaseError as error:
            raised.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "created in thread" in str(raised[0])


def test_a_broken_transaction_is_refused():
    before = Instance.objects.count()
    with transaction.atomic():
        with pytest.raises(REFUSED), transaction.atomic(savepoint=False):
            connection.cursor().execute("SELECT nothing")
        with pytest.raises(transaction.TransactionManagementError):
            enqueue()
        transaction.set_rollback(True)
    assert Instance.objects.count() == before


def test_an_error_is_djangos():
    with pytest.raises(REFUSED) as caught, cursor_of(own()) as cursor:
        cursor.execute("SELECT nothing")
    assert isinstance(caught.value.__cause__, own().Database.Error)
    assert own().errors_occurred


def test_a_connection_that_is_closed_is_opened():
    connection.close()
    assert is_bare()
    enqueue()


def test_a_lost_connection_is_djangos_error_and_can_be_closed():
    own().connection.close()
    with pytest.raises(Error):
        enqueue()
    connection.close()
    enqueue()
