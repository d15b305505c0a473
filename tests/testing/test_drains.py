"""What ``drain()``, ``work()`` and ``inline()`` run, and in which order."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.core import mail
from django.db import connection, transaction

from atp import Graph, queue, result, task_type
from atp.exceptions import InvalidOption, NotSerializable, QueueFull
from atp.models import Daemon, Task
from atp.operations.registry import registry
from atp.testing import EndlessDrain, Fault
from tests.app import tasks_testing as tasks
from tests.app.tasks import echo

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def declare(monkeypatch, own_types):
    """A function that declares a Type for one test."""
    monkeypatch.setattr(registry, "_former", dict(registry._former))

    def declare(handler, identifier="drains.own", **parameters):
        registry.remove("drains.own")
        made = task_type(identifier, **parameters)(handler)
        queue.register(made)
        return made

    yield declare
    registry._kept.clear()


def test_drain_runs_only_the_named_types_and_leaves_no_rows_or_files_behind(atp):
    # A daemon that was killed may have left a folder of locks.
    folders = Path(settings.SCRATCH_DIR), Path(f"{connection.settings_dict['NAME']}-atpd")
    tasks.group.enqueue(name="a")
    tasks.mail.enqueue(to="b@example.com")
    files = [sorted(folder.glob("**/*")) for folder in folders]
    assert [run.type for run in atp.drain(tasks.mail)] == ["kit.mail"]
    assert [run.type for run in atp.drain("kit.group")] == ["kit.group"]
    assert not Daemon.objects.exists()
    assert not Task.objects.exists()
    assert [sorted(folder.glob("**/*")) for folder in folders] == files


def test_drain_runs_tasks_enqueued_by_handlers_up_to_a_limit(atp):
    tasks.chain.enqueue(left=3)
    assert len(atp.drain()) == 4
    tasks.chain.enqueue(left=-1)
    with pytest.raises(EndlessDrain, match=r"10 attempts were run.*kit\.chain"):
        atp.drain(most=10)
    assert not Daemon.objects.exists()


def test_drain_raises_errors_or_returns_them(atp):
    """With ``retries`` only the error of the last attempt is raised."""
    tasks.refused.enqueue()
    [run] = atp.drain(raises=False)
    assert run.state == "ACCEPTED"
    assert isinstance(run.error, tasks.Refused)
    atp.later(hours=2)
    with pytest.raises(tasks.Refused):
        atp.drain(retries=True)
    [row] = atp.enqueued(tasks.refused)
    assert (row.state, row.reason, row.attempt) == ("FAILED", "ERROR", 3)
    tasks.refused.enqueue()
    runs = atp.drain(raises=False, retries=True)
    assert [run.state for run in runs] == ["ACCEPTED", "ACCEPTED", "FAILED"]
    for refused, error in ((tasks.fatal, tasks.Fatal), (tasks.unserializable, NotSerializable)):
        refused.enqueue()
        with pytest.raises(error):
            atp.drain()
        assert atp.enqueued(refused)[0].reason == "FATAL"
    # To retry or to defer is no error.
    tasks.later.enqueue()
    tasks.deferred.enqueue()
    assert [run.state for run in atp.drain()] == ["ACCEPTED"] * 2
    assert atp.drain() == []
    atp.later(hours=2)
    responses = {run.type: run.response for run in atp.drain()}
    assert responses == {"kit.later": 2, "kit.deferred": None}


def test_handlers_get_inputs_as_the_queue_stores_them(atp):
    """The eager modes of some other queues pass the original objects instead (celery#4008)."""
    given = ["as it was"]
    tasks.typed.enqueue(values=(1, 2), when=given)
    given.append("changed since")
    [run] = atp.drain()
    assert run.response == ["list", "list"]  # JSON has no tuples, and a test sees that
    assert run.instance.inputs.value["when"] == ["as it was"]
    with pytest.raises(NotSerializable):
        tasks.typed.enqueue(values=(object(),))
    events = [record.event for record in run.instance.log]
    assert events == ["enqueue", "claim", "start", "finish"]


def test_drain_follows_priorities_and_skips_what_was_cancelled(atp):
    queue.cancel(echo.enqueue(p=7))
    for priority in (0, 10, 5):
        echo.using(priority=priority).enqueue(p=priority)
    assert [run.response["p"] for run in atp.drain()] == [10, 5, 0]


def test_drain_can_simulate_an_attempt_lost_before_or_after_the_handler(atp):
    tasks.mail.enqueue(to="a@example.com")
    for number, lose, sent in ((1, "before", 0), (2, "after", 1)):
        [run] = atp.drain(lose=lose)
        assert (run.attempt, run.state, len(mail.outbox)) == (number, "ACCEPTED", sent)
    assert [run.attempt for run in atp.drain()] == [3]
    tasks.once.enqueue()
    assert [(run.state, run.reason) for run in atp.drain(twice=True)] == [("FAILED", "STALE")]


def test_a_run_returned_by_drain_shows_state_files_and_progress(atp):
    tasks.cancels_itself.enqueue()
    [run] = atp.drain()
    assert (run.state, run.reason) == ("FAILED", "CANCELLED")
    tasks.file.enqueue()
    [run] = atp.drain()
    assert [file["name"] for file in run.files] == ["file.txt"]
    assert not Path(run.response).exists()
    assert run.instance.progress == 1.0
    tasks.nothing.enqueue()  # a Type without retention
    [run] = atp.drain()
    assert (run.state, run.instance) == ("FINISHED", None)


def test_the_instance_is_running_while_its_handler_runs(atp):
    def planning():
        with connection.cursor() as cursor:
            cursor.execute("SHOW enable_seqscan")
            return cursor.fetchone()

    is_told = connection.vendor == "postgresql"
    tasks.state.enqueue()
    [run] = atp.drain()
    assert run.response == (["RUNNING", "on"] if is_told else ["RUNNING"])
    assert not is_told or planning() == ("on",)


def test_the_method_work_runs_one_attempt_and_no_other_task(atp, declare):
    """It applies the options set by ``using()``."""
    other = tasks.group.enqueue(name="other")
    assert atp.work(tasks.group, name="a").state == "FINISHED"
    assert queue.get(other.uuid).state == "ACCEPTED"
    run = atp.work(tasks.later, attempt=2)
    assert (run.attempt, run.response) == (2, 2)
    own = declare(facts)
    run = atp.work(own.using(collection="c", priority=7, identifier="i"))
    assert run.response == ["c", 7, "i"]
    assert facts(atp.context(own.using(collection="c", priority=7))) == ["c", 7, None]
    ended = atp.work(tasks.refused, attempt=3, raises=False)
    refused = atp.work(declare(fails, max_retries=3).using(max_retries=0), raises=False)
    assert (ended.state, refused.state, refused.reason) == ("FAILED", "FAILED", "ERROR")


def test_a_saga_is_undone_while_many_graphs_are_live(atp, declare):
    for _ in range(100):
        with Graph() as waiting:
            waiting.add(echo.using(run_after=HOUR), name="later")
    with Graph() as g:
        first = g.add(echo, name="a", undo=echo)
        g.add(declare(fails), after=first)
    atp.drain(raises=False)
    g.row.refresh_from_db()
    assert g.row.undone is not None


def test_inline_runs_tasks_from_on_commit_callbacks_and_after_a_cancel(
    atp, django_capture_on_commit_callbacks
):
    """A cancel unblocks a node that runs if the one before it fails."""
    with atp.inline(), django_capture_on_commit_callbacks(execute=True) as callbacks:
        transaction.on_commit(lambda: tasks.group.enqueue(name="a"))
    assert len(callbacks) == 1
    assert Group.objects.exists()
    with Graph() as g:
        first = g.add(echo.using(run_after=HOUR), name="a")
        g.add(echo, name="clean-up", after=first, on_failure="run")
    with atp.inline():
        queue.cancel(g.instance("a"))
        assert g.instance("clean-up").state == "FINISHED"


def facts(context):
    return [context.collection, context.priority, context.identifier]


def fails(context, number=0):
    raise ValueError(number)


def test_drain_empties_a_full_queue_and_runs_instances_of_a_former_name(atp, declare):
    own = declare(facts, max_waiting=2)
    own.enqueue_many([{}] * 2)
    with pytest.raises(QueueFull):
        own.enqueue()
    atp.drain()
    own.enqueue()
    renamed = declare(facts, "drains.renamed", formerly=["drains.own"])
    assert len(atp.enqueued(renamed)) == 3
    assert [run.state for run in atp.drain(renamed)] == ["FINISHED"]


def test_drain_inside_inline_raises_only_its_own_errors(atp, declare):
    """Other due Tasks run after the drain of one Type."""
    own = declare(fails, max_retries=0)
    with atp.inline():
        tasks.chain.using(run_after=HOUR).enqueue(left=0)
        tasks.group.using(run_after=HOUR).enqueue(name="a")
        for number in range(2):
            own.using(run_after=HOUR).enqueue(number)
        atp.later(hours=2)
        assert [run.state for run in atp.drain(own, raises=False)] == ["FAILED"] * 2
        assert atp.enqueued(tasks.chain)[0].state == "FINISHED"
        assert atp.enqueued(tasks.group)[0].state == "FINISHED"
        assert atp.work(tasks.group, name="d").state == "FINISHED"


def test_the_next_node_gets_the_output_of_a_type_without_retention(atp, declare):
    """A retention of 0 does not lose the output before the next node has it."""
    own = declare(lambda context, value: value, retention=0)
    with Graph() as graph:
        first = graph.add(own, value=42)
        graph.add(echo, value=result(first), after=first)
    runs = atp.drain()
    assert runs[-1].response == {"value": 42}


def test_a_run_keeps_the_state_of_its_attempt_although_the_instance_is_redriven(atp, declare):
    own = declare(fails, max_retries=0)

    @task_type("drains.redrive")
    def redrive(context):
        queue.redrive(*atp.enqueued(own))

    queue.register(redrive)
    own.enqueue()
    redrive.enqueue()
    states = [(run.type, run.state) for run in atp.drain(raises=False)]
    assert states[0] == ("drains.own", "FAILED")
    assert len(states) == 3


@pytest.mark.slow
def test_a_step_runs_once_if_its_result_was_kept(atp):
    """A step in a transaction runs exactly once (G17)."""
    for point, calls, is_written in (
        ("before charge", 1, False),
        ("in charge", 2, False),
        ("after charge", 1, False),
        ("before write", 1, False),
        ("in write", 1, False),
        ("after write", 1, True),
    ):
        tasks.CHARGED.clear()
        group = Group.objects.filter(name=point)
        tasks.steps.enqueue(name=point)
        [lost] = atp.drain(lose=Fault(point))
        assert (lost.state, lost.attempt) == ("ACCEPTED", 1)
        assert group.exists() == is_written
        [run] = atp.drain()
        assert (run.state, run.attempt, run.instance.restarts) == ("FINISHED", 2, 1)
        assert (len(tasks.CHARGED), group.count()) == (calls, 1), point


def test_drain_rejects_invalid_and_unreached_fault_points(atp):
    tasks.steps.enqueue(name="a")
    with pytest.raises(AssertionError, match=r"'after chrage'\. Steps: charge, write\."):
        atp.drain(lose=Fault("after chrage"))
    for point in ("charge", "after", "beside charge", ""):
        with pytest.raises(InvalidOption, match="must be 'before', 'in' or 'after'"):
            Fault(point)
    with pytest.raises(InvalidOption, match="lose='middle'"):
        atp.drain(lose="middle")
    with pytest.raises(InvalidOption, match="leave out lose="):
        atp.drain(twice=True, lose="after")
