"""What surrounds a handler: connections, error reporters, logging, interruption."""

import logging
import pickle

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import got_request_exception
from django.db import OperationalError, ProgrammingError, connection, transaction
from django.db.backends.signals import connection_created

from atp import queue, signals
from atp.daemon.connections import Connections
from atp.daemon.options import Options
from atp.daemon.outcome import Kind
from atp.daemon.page import Page
from atp.daemon.worker import Worker, open_root_logger
from atp.models import Type
from tests.helpers import Thread
from tests.samples import claimed


class Said:
    """A channel that keeps what the worker says."""

    def __init__(self):
        self.messages = []

    def send(self, message, wait=True):
        self.messages.append(message)

    def kinds(self):
        return [message[0] for message in self.messages]


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def worker(said, tmp_path, transactional_db):
    (tmp_path / "worker-0").mkdir()
    return Worker(0, said, None, Page(1), tmp_path, Options(processes=1))


def task(type, inputs="{}"):
    return claimed(1, type)._replace(data=inputs)


def executed(worker, claimed):
    """Perform a task, and return its outcome as the dispatcher hears it."""
    worker._perform(claimed)
    [record] = worker._ring.read(worker._ring.written)
    return pickle.loads(record)[-1]


def test_one_task(worker, said):
    worker._perform(task("SequenceSum", '{"*":[1,2,3]}'))
    assert said.kinds() == ["log", "look"]
    [record] = worker._ring.read(worker._ring.written)
    instance, attempt, started, ended, outcome = pickle.loads(record)
    assert (instance, attempt, started <= ended) == (1, 1, True)
    assert outcome.kind is Kind.FINISHED
    assert outcome.response.data == b"6"
    assert worker._page.read(0) is None


def test_what_is_too_large_for_the_ring_goes_through_the_channel(worker, said):
    """G1: nothing that a handler returned is lost on its way."""
    worker._perform(task("daemon.error", f'{{"words":"{"x" * 7000}"}}'))
    assert said.kinds() == ["ended"]
    assert "x" * 7000 in said.messages[0][-1].message
    for size in (100, 1):
        while worker._ring.write(b"x" * size):
            pass
    worker._perform(task("daemon.noop"))
    assert said.messages[1][:3] == ("ended", 1, 1)


def test_short_tasks_do_not_call_the_dispatcher_each(worker, said):
    for _ in range(100):
        worker._perform(task("daemon.noop"))
    assert len(worker._ring.read(worker._ring.written)) == 100
    assert set(said.kinds()) <= {"look"}
    assert len(said.messages) < 50


def test_error_reporters_see_exceptions(worker, caplog):
    """By logging and by Django's signal; an exception in a receiver harms nothing."""
    seen = []

    def reporter(sender, request, **kwargs):
        import sys

        seen.append(sys.exc_info()[1])
        raise RuntimeError("a reporter that fails")

    got_request_exception.connect(reporter)
    try:
        outcome = executed(worker, task("daemon.error", '{"words":"look at this"}'))
    finally:
        got_request_exception.disconnect(reporter)
    assert outcome.kind is Kind.ERROR
    assert [str(error) for error in seen] == ["look at this"]
    [record] = [r for r in caplog.records if r.name == "atp.worker"]
    assert str(record.exc_info[1]) == "look at this"


def test_what_was_meant_is_not_reported(worker, caplog):
    """Retry and Fatal are words of the handler, not accidents."""
    assert executed(worker, task("daemon.fatal")).kind is Kind.FATAL
    assert not [r for r in caplog.records if r.name == "atp.worker"]


@pytest.mark.parametrize("inputs", ["not json", "[]", '{"words":1,"nothing":2}'])
def test_inputs_that_cannot_be_used(worker, inputs):
    outcome = executed(worker, task("daemon.error", inputs))
    assert outcome.kind in (Kind.FATAL, Kind.ERROR)


def test_signals_around_a_handler(worker):
    seen = []

    def started(context, **kwargs):
        seen.append(("started", context.type))

    def ended(context, exception, **kwargs):
        seen.append(("ended", str(exception)))

    signals.handler_started.connect(started)
    signals.handler_ended.connect(ended)
    executed(worker, task("daemon.error"))
    assert seen == [("started", "daemon.error"), ("ended", "went wrong")]


def test_an_asked_attempt_is_interrupted(worker, tmp_path):
    worker._page.ask(0, 1, 1)
    inputs = f'{{"path":"{tmp_path}/record","until":"{tmp_path}/never"}}'
    assert executed(worker, task("daemon.interrupted", inputs)).kind is Kind.INTERRUPTED


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OperationalError("too many clients"), Kind.SHUT_OUT),
        (ImproperlyConfigured("not like this"), Kind.ERROR),
        (KeyError("a receiver's own fault"), Kind.ERROR),
        (ProgrammingError("no such role"), Kind.ERROR),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_a_transaction_that_cannot_begin(worker, raised, kind):
    """G2, G5: only an outage is nobody's fault; else the attempt has failed, and says why."""

    def refuse(sender, **kwargs):
        raise raised

    connection.close()
    connection_created.connect(refuse)
    try:
        outcome = executed(worker, task("transactional.row", '{"number":1}'))
    finally:
        connection_created.disconnect(refuse)
        connection.close()
    assert outcome.kind is kind
    assert str(raised) in outcome.message


def test_a_stale_connection_never_reaches_the_next_task(transactional_db, monkeypatch):
    """Even one that Django would keep for ever."""
    if connection.vendor != "postgresql":
        pytest.skip("a SQLite connection cannot be cut by a server")
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    connection.close()
    connections = Connections()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    connections.refresh()
    Thread(_terminate, pid).result()
    connections.check()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone()[0] != pid


def _terminate(pid):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        assert cursor.fetchone()[0]


@pytest.mark.parametrize("how", ["autocommit", "atomic"])
def test_a_transaction_left_open_ends_with_its_task(transactional_db, how):
    connection.close()
    connections = Connections()
    queue.register_all()
    if how == "autocommit":
        transaction.set_autocommit(False)
    else:
        transaction.atomic().__enter__()
    Type.objects.update(handler="changed")
    connections.refresh()
    assert connection.get_autocommit()
    assert not connection.in_atomic_block
    assert not Type.objects.filter(handler="changed").exists()


def test_connections_of_other_threads_are_left_alone(transactional_db):
    connections = Connections()

    def use():
        connection.ensure_connection()
        connections.check()  # as if the worker's thread did
        connection.close()

    Thread(use).result()
    connections.check()
    connections.refresh()
    assert connections._opened == []


def test_root_logger_passes_what_is_captured_and_no_more(monkeypatch):
    root = logging.getLogger()
    handler = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(root, "level", logging.WARNING)
    open_root_logger("INFO")
    assert root.level == logging.INFO
    assert handler.level == logging.WARNING
    root.setLevel(logging.WARNING)
