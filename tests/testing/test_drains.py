"""What a drain, ``work()`` and ``inline()`` run, and in which order."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.core import mail
from django.db import connection, transaction

from atp import Graph, queue, result, task_type
from atp.exceptions import InvalidInputs, InvalidOption, NotSerializable, QueueFull
from atp.models import Daemon, Task
from atp.operations.registry import registry
from atp.testing import EndlessDrain, Fault
from tests.app import tasks_testing as tasks
from tests.app.tasks import echo

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def declare(monkeypatch):
    """Return a function that declares a Type for one test."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(registry, "_former", dict(registry._former))

    def declare(handler, identifier="drains.own", **parameters):
        registry.remove("drains.own")
        made = task_type(identifier, **parameters)(handler)
        queue.register(made)
        return made

    yield declare
    registry._kept.clear()


def test_nothing_is_left_of_its_daemon(atp):
    # A daemon that was killed may have left a folder of locks.
    folders = Path(settings.SCRATCH_DIR), Path(f"{connection.settings_dict['NAME']}-atpd")
    tasks.group.enqueue(name="a")
    files = [sorted(folder.glob("**/*")) for folder in folders]
    atp.drain()
    assert not Daemon.objects.exists()
    assert not Task.objects.exists()
    assert [sorted(folder.glob("**/*")) for folder in folders] == files


def test_only_the_types_that_are_named(atp):
    tasks.group.enqueue(name="a")
    tasks.mail.enqueue(to="b@example.com")
    assert [run.type for run in atp.drain(tasks.mail)] == ["kit.mail"]
    assert [run.type for run in atp.drain("kit.group")] == ["kit.group"]


def test_what_it_enqueues_is_drained(atp):
    tasks.chain.enqueue(left=3)
    assert len(atp.drain()) == 4
    tasks.chain.enqueue(left=-1)
    with pytest.raises(EndlessDrain, match=r"10 attempts were run.*kit\.chain"):
        atp.drain(most=10)
    assert not Daemon.objects.exists()


def test_errors(atp):
    """They are told if they are not raised; with ``retries`` only the last one is raised."""
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


def test_what_is_enqueued_is_kept_as_the_queue_carries_it(atp):
    """Not the objects themselves, as in the eager modes of other queues (celery#4008)."""
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


def test_priorities_and_gates_are_those_of_the_queue(atp):
    for priority in (0, 10, 5):
        echo.using(priority=priority).enqueue(p=priority)
    assert [run.response["p"] for run in atp.drain()] == [10, 5, 0]
    queue.hold("tests.echo")
    row = echo.enqueue(a=1)
    assert atp.drain() == []
    queue.cancel(row.uuid)
    queue.open_gate("tests.echo")
    assert atp.drain() == []
    assert queue.get(row.uuid).reason == "CANCELLED"


def test_what_is_enqueued_on_commit_is_not_waited_for(atp, django_capture_on_commit_callbacks):
    with atp.inline(), django_capture_on_commit_callbacks(execute=True) as callbacks:
        transaction.on_commit(lambda: tasks.group.enqueue(name="a"))
    assert len(callbacks) == 1
    assert Group.objects.exists()


def test_another_attempt_that_is_asked_for_is_no_error(atp):
    tasks.later.enqueue()
    tasks.deferred.enqueue()
    assert [run.state for run in atp.drain()] == ["ACCEPTED"] * 2
    assert atp.drain() == []
    atp.later(hours=2)
    assert {run.type: run.response for run in atp.drain()} == {
        "kit.later": 2,
        "kit.deferred": None,
    }


def test_an_attempt_is_lost(atp):
    tasks.mail.enqueue(to="a@example.com")
    for number, lose, sent in ((1, "before", 0), (2, "after", 1)):
        [run] = atp.drain(lose=lose)
        assert (run.attempt, run.state, len(mail.outbox)) == (number, "ACCEPTED", sent)
    assert [run.attempt for run in atp.drain()] == [3]
    tasks.once.enqueue()
    assert [(run.state, run.reason) for run in atp.drain(twice=True)] == [("FAILED", "STALE")]


def test_a_cancel_reaches_the_handler(atp):
    tasks.cancels_itself.enqueue()
    [run] = atp.drain()
    assert (run.state, run.reason) == ("FAILED", "CANCELLED")


def test_files_and_progress(atp):
    tasks.file.enqueue()
    [run] = atp.drain()
    assert [file["name"] for file in run.files] == ["file.txt"]
    assert not Path(run.response).exists()
    assert run.instance.progress == 1.0


def test_it_is_running_while_it_runs_and_plans_as_the_test(atp):
    def planning():
        with connection.cursor() as cursor:
            cursor.execute("SHOW enable_seqscan")
            return cursor.fetchone()

    is_told = connection.vendor == "postgresql"
    tasks.state.enqueue()
    [run] = atp.drain()
    assert run.response == (["RUNNING", "on"] if is_told else ["RUNNING"])
    assert not is_told or planning() == ("on",)


def test_what_is_not_kept_has_finished(atp):
    tasks.nothing.enqueue()
    [run] = atp.drain()
    assert (run.state, run.instance) == ("FINISHED", None)


def test_one_attempt_beside_others_that_wait(atp):
    other = tasks.group.enqueue(name="other")
    assert atp.work(tasks.group, name="a").state == "FINISHED"
    assert queue.get(other.uuid).state == "ACCEPTED"
    run = atp.work(tasks.later, attempt=2)
    assert (run.attempt, run.response) == (2, 2)
    run = atp.work(tasks.refused, attempt=3, raises=False)
    assert (run.state, run.reason) == ("FAILED", "ERROR")


def test_a_saga_is_undone_beside_many_live_graphs(atp, declare):
    for _ in range(100):
        with Graph() as waiting:
            waiting.add(echo.using(run_after=HOUR), name="later")
    with Graph() as g:
        first = g.add(echo, name="a", undo=echo)
        g.add(declare(fails), after=first)
    atp.drain(raises=False)
    g.row.refresh_from_db()
    assert g.row.undone is not None


def test_inline_runs_what_a_cancelled_node_frees(atp):
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


def test_work_takes_the_options_of_using(atp, declare):
    own = declare(facts)
    run = atp.work(own.using(collection="c", priority=7, identifier="i"))
    assert run.response == ["c", 7, "i"]
    assert facts(atp.context(own.using(collection="c", priority=7))) == ["c", 7, None]
    run = atp.work(declare(fails, max_retries=3).using(max_retries=0), raises=False)
    assert (run.state, run.reason) == ("FAILED", "ERROR")


def test_inputs_have_names_and_hooks_are_not_compared(atp):
    for ask in (atp.work, atp.assert_enqueued):
        with pytest.raises(InvalidInputs, match="by name"):
            ask(tasks.group, inputs=[1])
    with pytest.raises(InvalidInputs, match="no argument 'on_finished'"):
        atp.assert_enqueued(tasks.group, on_finished=tasks.group)


def test_what_waits_under_a_former_name_runs(atp, declare):
    declare(facts).enqueue()
    renamed = declare(facts, "drains.renamed", formerly=["drains.own"])
    assert len(atp.enqueued(renamed)) == 1
    assert [run.state for run in atp.drain(renamed)] == ["FINISHED"]


def test_a_drain_inside_inline_runs_all_itself(atp, declare):
    """What a drain of one Type leaves comes after it; its errors are its own."""
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


def test_the_output_of_a_node_whose_type_keeps_nothing(atp, declare):
    """The next node gets it all the same."""
    own = declare(lambda context, value: value, retention=0)
    with Graph() as graph:
        first = graph.add(own, value=42)
        graph.add(echo, value=result(first), after=first)
    runs = atp.drain()
    assert runs[-1].response == {"value": 42}


def test_a_queue_that_was_drained_is_not_full(atp, declare):
    own = declare(facts, max_waiting=2)
    own.enqueue_many([{}] * 2)
    with pytest.raises(QueueFull):
        own.enqueue()
    atp.drain()
    own.enqueue()


def test_the_state_after_an_attempt_that_somebody_redrives(atp, declare):
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


def test_a_step_is_done_once_if_its_result_was_kept(atp):
    """G17: a step in a transaction is done exactly once."""
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


def test_a_fault_point_that_nothing_comes_to_is_told(atp):
    tasks.steps.enqueue(name="a")
    with pytest.raises(AssertionError, match=r"'after chrage'\. Steps: charge, write\."):
        atp.drain(lose=Fault("after chrage"))


def test_the_arguments_of_a_drain_are_checked(atp):
    for point in ("charge", "after", "beside charge", ""):
        with pytest.raises(InvalidOption, match="must be 'before', 'in' or 'after'"):
            Fault(point)
    with pytest.raises(InvalidOption, match="lose='middle'"):
        atp.drain(lose="middle")
    with pytest.raises(InvalidOption, match="leave out lose="):
        atp.drain(twice=True, lose="after")
