"""Running the handler of a task in this process: context, return value and signals."""

import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from django.db import OperationalError

from atp import queue
from atp.authoring.context import Context, LogCapture
from atp.backend.frameworks import TaskContext, TaskResultStatus
from atp.backend.running import ATPTaskContext
from atp.daemon.outcomes import Kind
from atp.daemon.worker import execution
from atp.states import Event
from atp.store import get_store
from tests.app.tasks import echo

from . import tasks
from .receivers import receiving

pytestmark = pytest.mark.django_db
WORKER = "host:1 worker 2"


@pytest.fixture
def told():
    """The names of the sent signals, their results, and the exception that was current."""
    told = SimpleNamespace(names=[], results=[], raised=[])

    def receiver(name):
        def receive(sender, task_result, **kwargs):
            told.names.append(name)
            told.results.append(task_result)
            told.raised.append(sys.exc_info()[0])

        return receive

    with receiving(started=receiver("started"), finished=receiver("finished")):
        yield told


@pytest.fixture
def run(world, tmp_path):
    """Claim the enqueued Task and run it in this process; return the outcome, record nothing."""
    names = {f"{tasks.__name__}.{name}" for name in vars(tasks) if name.islower()}
    host = world.host(*names, "tests.echo")

    def run():
        [run.case] = host.claim()
        return execute(run.case, tmp_path)

    run.host = host
    return run


def execute(case, scratch=None):
    context = Context(
        case,
        report=lambda *report: None,
        interruption=lambda: None,
        scratch_root=scratch,
        worker=WORKER,
    )
    return execution.run(case, context)


def test_return_value_is_normalized_as_django_does(run):
    """Keys that are not text become text, because a finished task should not fail for them."""
    for task, args, response in (
        (tasks.add, (1, 2, 3), b"6"),
        (tasks.later, (4,), b"5"),
        (tasks.pair, (), b'[1,"two"]'),
        (tasks.by_number, (), b'{"1":"a","null":{"true":2.5},"text":[{"7":8}]}'),
    ):
        task.enqueue(*args)
        assert run().response.data == response
    tasks.nothing.enqueue(1, two=[{"three": None}])
    assert run().kind is Kind.FINISHED
    # A value that JSON cannot carry would be the same next time; the error is Django's.
    tasks.strange.enqueue()
    outcome = run()
    assert (outcome.kind, outcome.raised) == (Kind.FATAL, "builtins.TypeError")
    assert "Unsupported type" in outcome.message


def test_async_task_knows_its_attempt_without_querying_the_database(run, monkeypatch):
    """A coroutine cannot query the database, and attributes of its context cannot be awaited."""
    tasks.which.enqueue()
    [case] = run.host.claim()
    run.host.move(case, Event.START)
    run.host.move(case, Event.RETRY, delay=timedelta(0))
    assert run().response.data == b"[2,true]"

    # Only the time of its enqueue is not known then.
    away = Mock(side_effect=OperationalError("the database is away"))
    monkeypatch.setattr("atp.backend.results.history", away)
    tasks.async_with_context.using(priority=9).enqueue()
    assert run().response.data == b"1"


def test_handler_gets_values_that_json_lacks(run, told):
    """Such values come from a schedule, the shell or the API; the result shows them as text."""
    slot = datetime(2030, 1, 31, tzinfo=UTC)
    made = queue.enqueue(queue.declared("tests.backend.tasks.nightly"), "alps", slot=slot)
    assert run().response.data == b'"alps 2030"'
    assert told.results[-1].kwargs == {"slot": "2030-01-31T00:00:00+00:00"}
    assert tasks.nightly.get_result(made.uuid).kwargs == {"slot": "2030-01-31T00:00:00+00:00"}


def test_task_context_describes_the_attempt(run):
    """Refreshing the result loses nothing, although the start is recorded a moment later."""
    result = tasks.who.enqueue(5)
    found = json.loads(run().response.data)
    assert (found["id"], found["type"]) == (result.id, "tests.backend.tasks.who")
    assert (found["attempt"], found["args"], found["workers"]) == (1, [5], [WORKER])
    assert (found["status"], found["enqueued"]) == ("RUNNING", True)
    assert issubclass(ATPTaskContext, TaskContext)
    tasks.looks_again.enqueue()
    assert json.loads(run().response.data) == [1, "RUNNING", [WORKER]]


def test_failing_signal_receivers_do_not_affect_the_task(run):
    """``task_finished`` is sent before the end is recorded; a receiver can be a coroutine."""
    seen = []

    def finished(sender, task_result, **kwargs):
        task_result.refresh()
        seen.append((str(task_result.status), task_result.is_finished))

    async def started(sender, task_result, **kwargs):
        seen.append(task_result.enqueued_at)

    def fails(sender, **kwargs):
        raise RuntimeError("a receiver's own fault")

    with receiving(finished=finished), receiving(started=started), receiving(started=fails):
        result = tasks.add.enqueue(1)
        assert run().kind is Kind.FINISHED
    assert set(seen) == {result.enqueued_at, ("SUCCESSFUL", True)}


def test_signals_around_a_task_cost_no_query(run, told, django_assert_num_queries):
    """A worker whose tasks use no database therefore needs no connection."""
    result = tasks.add.enqueue(1)
    [case] = run.host.claim()
    with django_assert_num_queries(0):
        execute(case)
        assert told.results[0].attempts == 1
    started, finished = told.results
    assert told.names == ["started", "finished"]
    assert started is finished
    assert (finished.id, finished.task, finished.args) == (result.id, tasks.add, [1])
    assert finished.status == TaskResultStatus.SUCCESSFUL
    assert finished.return_value == 1
    assert result.enqueued_at == finished.enqueued_at <= finished.finished_at
    tasks.fails.enqueue()
    run()
    failed = told.results[-1]
    assert told.names == ["started", "finished"] * 2
    assert (failed.status, failed.errors[0].exception_class) == ("FAILED", ValueError)
    assert told.raised == [None, None, None, ValueError]
    # A Type of ATP's own sends none.
    echo.enqueue()
    assert run().kind is Kind.FINISHED
    assert len(told.names) == 4


def test_attempt_times_use_the_clock_of_the_enqueue(run, told, monkeypatch):
    """The difference between the times of enqueue and start is therefore meaningful."""
    ahead = timedelta(hours=1)
    monkeypatch.setattr(type(get_store()), "clock_offset", lambda store: ahead)
    tasks.add.enqueue(1)
    run()
    [result, _] = told.results
    began, ended = result.started_at, result.finished_at
    assert result.enqueued_at is not None
    assert (result.started_at - began, result.finished_at - ended) == (ahead, ahead)
    assert result.last_attempted_at == result.started_at
    result.look()
    assert result.finished_at - ended == ahead


def test_retried_task_sends_task_finished_only_at_its_end(run, told):
    """The context of the second attempt includes the first."""
    tasks.stubborn.enqueue()
    outcome = run()
    assert told.names == ["started"]
    facts = {"who": WORKER, "delay": timedelta(0), "detail": outcome.raised}
    run.host.move(run.case, Event.START, who=WORKER)
    run.host.move(run.case, Event.RETRY, message=outcome.message, **facts)
    run()
    assert told.names == ["started", "started"]
    result = told.results[-1]
    assert (result.attempts, result.worker_ids) == (2, [WORKER, WORKER])
    assert [e.exception_class for e in result.errors] == [KeyError]
    assert result.started_at < result.last_attempted_at


def test_log_capture_ignores_records_of_the_django_tasks_loggers(said, context):
    """The log already has these messages as events."""
    capture = LogCapture(context)
    for name in ("django.tasks", "django_tasks", "shop"):
        capture.emit(logging.makeLogRecord({"name": name, "levelno": 20, "msg": "told"}))
    context.end()
    assert [report[-1] for report in said if report[0] == "log"] == ["shop: told"]
