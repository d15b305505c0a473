"""Running a task's handler, in this process: context, return value, signals."""

import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from atp import queue
from atp.authoring.context import Context
from atp.backend.context import ATPTaskContext
from atp.backend.frameworks import TaskContext, TaskResultStatus, signals
from atp.daemon.shared.outcome import Kind
from atp.daemon.worker import execution
from atp.states import Event
from atp.store.contract import Store

from . import tasks

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]
WORKER = "host:1 worker 2"


class Told:
    """What the signals said, in order; ``results`` are what they were sent with."""

    def __init__(self):
        self.names, self.results, self.raised = [], [], []

    def started(self, sender, task_result, **kwargs):
        self._note("started", task_result)

    def finished(self, sender, task_result, **kwargs):
        self._note("finished", task_result)
        self.raised.append(sys.exc_info()[0])

    def _note(self, name, result):
        self.names.append(name)
        self.results.append(result)


@pytest.fixture
def told():
    told = Told()
    connections = [("task_started", told.started), ("task_finished", told.finished)]
    for name, receive in connections:
        for signal in signals(name):
            signal.connect(receive)
    yield told
    for name, receive in connections:
        for signal in signals(name):
            signal.disconnect(receive)


@pytest.fixture
def run(world, tmp_path):
    """Claim what is enqueued and run it here; returns the outcome, and records nothing."""
    names = {f"{tasks.__name__}.{name}" for name in vars(tasks) if name.islower()}
    host = world.host(*names)

    def run():
        [claimed] = host.claim()
        context = Context(
            claimed,
            report=lambda *report: None,
            interruption=lambda: None,
            scratch_root=tmp_path,
            worker=WORKER,
        )
        run.case = claimed
        return execution.run(claimed, context)

    run.host = host
    return run


def test_what_a_task_returns(run):
    tasks.add.enqueue(1, 2, 3)
    assert run().response.data == b"6"


def test_a_coroutine_knows_its_attempt(run):
    """Attributes of its context cannot be awaited, and a coroutine may not ask the database."""
    tasks.which.enqueue()
    [case] = run.host.claim()
    run.host.move(case, Event.START)
    run.host.move(case, Event.RETRY, delay=timedelta(0))
    assert run().response.data == b"[2,true]"


def test_a_coroutine(run):
    tasks.later.enqueue(4)
    assert run().response.data == b"5"


def test_a_value_is_normalized_as_django_does(run):
    tasks.pair.enqueue()
    assert run().response.data == b'[1,"two"]'


def test_a_value_that_json_cannot_carry_is_not_computed_again(run):
    """It would be the same next time; the error is Django's."""
    tasks.strange.enqueue()
    outcome = run()
    assert (outcome.kind, outcome.raised) == (Kind.FATAL, "builtins.TypeError")
    assert "Unsupported type" in outcome.message


def test_keys_that_are_no_text_become_text(run):
    """As in JSON: a task that has done its work does not fail for them."""
    tasks.by_number.enqueue()
    assert run().response.data == b'{"1":"a","null":{"true":2.5},"text":[{"7":8}]}'


def test_it_gets_values_that_json_lacks(run, told):
    """From a schedule, the shell or the API; the result has them as text."""
    slot = datetime(2030, 1, 31, tzinfo=UTC)
    made = queue.enqueue(queue.declared("tests.backend.tasks.nightly"), "alps", slot=slot)
    assert run().response.data == b'"alps 2030"'
    assert told.results[-1].kwargs == {"slot": "2030-01-31T00:00:00+00:00"}
    assert tasks.nightly.get_result(made.uuid).kwargs == {"slot": "2030-01-31T00:00:00+00:00"}


def test_a_result_that_is_refreshed_in_its_task_loses_nothing(run):
    """The start of an attempt is recorded a moment later than the worker knows of it."""
    tasks.looks_again.enqueue()
    assert queue_json(run()) == [1, "RUNNING", [WORKER]]


def test_a_result_that_is_refreshed_at_its_end_is_not_running_again(run):
    """The signal is sent before the end is recorded."""
    seen = []

    def receive(sender, task_result, **kwargs):
        task_result.refresh()
        seen.append((str(task_result.status), task_result.is_finished))

    [first, *_] = signals("task_finished")
    first.connect(receive)
    try:
        tasks.add.enqueue(1)
        run()
    finally:
        first.disconnect(receive)
    assert seen == [("SUCCESSFUL", True)]


def test_a_coroutine_runs_without_the_database(run, monkeypatch):
    """Only the time of its enqueue is not known then."""
    tasks.async_with_context.enqueue()
    [claimed] = run.host.claim()
    context = Context(claimed, report=print, interruption=lambda: None, scratch_root=None)

    def away(*args):
        raise OperationalError("the database is away")

    monkeypatch.setattr("atp.backend.results.history", away)
    assert execution.run(claimed, context).kind is Kind.FINISHED


def test_a_receiver_that_is_a_coroutine_reads_the_result(run):
    seen = []

    async def receive(sender, task_result, **kwargs):
        seen.append(task_result.enqueued_at)

    [first, *_] = signals("task_started")
    first.connect(receive)
    try:
        result = tasks.add.enqueue(1)
        run()
    finally:
        first.disconnect(receive)
    assert seen == [result.enqueued_at]


def test_nothing(run):
    tasks.nothing.enqueue(1, two=[{"three": None}])
    assert run().kind is Kind.FINISHED


def test_a_context(run):
    result = tasks.who.enqueue(5)
    outcome = run()
    assert queue_json(outcome) == {
        "id": result.id,
        "attempt": 1,
        "args": [5],
        "workers": [WORKER],
        "status": "RUNNING",
        "enqueued": True,
        "type": "tests.backend.tasks.who",
    }


def queue_json(outcome):
    import json

    return json.loads(outcome.response.data)


def test_a_context_is_one_of_djangos():
    assert issubclass(ATPTaskContext, TaskContext)


def test_signals_around_a_task(run, told):
    result = tasks.add.enqueue(1)
    run()
    started, finished = told.results
    assert told.names == ["started", "finished"]
    assert started is finished
    assert (finished.id, finished.task, finished.args) == (result.id, tasks.add, [1])
    assert finished.status == TaskResultStatus.SUCCESSFUL
    assert finished.return_value == 1
    assert result.enqueued_at == finished.enqueued_at <= finished.finished_at
    assert told.raised == [None]


def test_the_times_of_an_attempt_are_of_the_clock_of_its_enqueue(run, told, monkeypatch):
    """Whoever asks for the time of the enqueue can subtract it from the others."""
    ahead = timedelta(hours=1)
    monkeypatch.setattr(Store, "clock_offset", lambda store: ahead)
    tasks.add.enqueue(1)
    run()
    [result, _] = told.results
    began, ended = result.started_at, result.finished_at
    assert result.enqueued_at is not None
    assert (result.started_at - began, result.finished_at - ended) == (ahead, ahead)
    assert result.last_attempted_at == result.started_at
    result.look()
    assert result.finished_at - ended == ahead


def test_the_signals_of_a_first_attempt_cost_no_query(run, told, django_assert_num_queries):
    """So a worker whose tasks need no database has no connection."""
    tasks.add.enqueue(1)
    [claimed] = run.host.claim()
    context = Context(claimed, report=print, interruption=lambda: None, scratch_root=None)
    with django_assert_num_queries(0):
        execution.run(claimed, context)
        assert told.results[0].attempts == 1


def test_a_failure_is_told_with_its_exception(run, told):
    tasks.fails.enqueue()
    run()
    assert told.names == ["started", "finished"]
    [error] = told.results[-1].errors
    assert told.results[-1].status == TaskResultStatus.FAILED
    assert (error.exception_class, told.raised) == (ValueError, [ValueError])


def test_what_is_tried_again_has_not_finished(run, told):
    """Its second attempt knows the first."""
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


def test_fatal_is_told_at_once(run, told):
    tasks.fatal.enqueue()
    run()
    assert told.names == ["started", "finished"]
    assert told.results[-1].errors[0].traceback == "no use\n"


def test_a_receiver_that_fails_harms_no_task(run):
    def fail(sender, **kwargs):
        raise RuntimeError("a receiver's own fault")

    [first, *_] = signals("task_started")
    first.connect(fail)
    try:
        tasks.add.enqueue(1)
        assert run().kind is Kind.FINISHED
    finally:
        first.disconnect(fail)


def test_a_type_of_atps_own_sends_none(world, told, tmp_path):
    from tests.app.tasks import echo

    echo.enqueue()
    [claimed] = world.host("tests.echo").claim()
    context = Context(claimed, report=print, interruption=lambda: None, scratch_root=tmp_path)
    execution.run(claimed, context)
    assert told.names == []


def test_what_django_logs_of_it_is_no_message_of_the_task(said, context):
    """It is in the log already, as its events."""
    from atp.authoring.log_capture import LogCapture

    capture = LogCapture(context)
    for name in ("django.tasks", "django_tasks", "shop"):
        capture.emit(logging.makeLogRecord({"name": name, "levelno": 20, "msg": "told"}))
    context.end()
    assert [report[-1] for report in said if report[0] == "log"] == ["shop: told"]
