"""Tasks of django.tasks, run by a real atpd."""

import pytest

from atp import exceptions, queue
from atp.backend.frameworks import TaskResultStatus
from atp.models import Instance, LogRecord
from atp.rows.log import Kind
from atp.states import State
from tests.helpers import DEADLINE, wait_for

from . import tasks

pytestmark = pytest.mark.each_database


def drain(atpd, *results, **options):
    """Run all that waits, and read the results again."""
    daemon = atpd("--drain", **options)
    assert daemon.wait() == 0, daemon.log_path.read_text()
    for result in results:
        result.refresh()
    return results


def test_tasks_are_run_by_another_process(atpd):
    """G2: whatever a function does, its result says so."""
    good = [tasks.add.enqueue(1, 2), tasks.later.enqueue(3), tasks.pair.enqueue()]
    context = tasks.who.enqueue()
    bad = [tasks.fails.enqueue(), tasks.leaves.enqueue(), tasks.strange.enqueue()]
    bad += [tasks.fatal.enqueue(), tasks.fails_at_length.enqueue(), tasks.stubborn.enqueue()]
    drain(atpd, *good, context, *bad)
    assert [result.return_value for result in good] == [3, 4, [1, "two"]]
    assert context.return_value["id"] == context.id
    assert context.return_value["workers"] == context.worker_ids
    assert {result.status for result in bad} == {TaskResultStatus.FAILED}
    assert [[each.exception_class for each in result.errors] for result in bad] == [
        [ValueError],
        [SystemExit],
        [TypeError],
        [exceptions.Fatal],
        [tasks.AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP],
        [KeyError, KeyError, KeyError],
    ]
    assert bad[0].errors[0].traceback.endswith("\nValueError: went wrong\n")
    assert bad[-1].attempts == 3
    assert not LogRecord.objects.filter(kind=Kind.MESSAGE).exists()


def test_a_task_that_kills_its_worker(atpd):
    """G5."""
    [result] = drain(atpd, tasks.exits.enqueue(), settings={"MAX_RESTARTS": 1})
    assert [e.exception_class for e in result.errors] == [exceptions.Stale]
    assert result.attempts >= 2
    # Each start is signed by its worker, also those of attempts that run alone.
    assert all(" worker " in worker for worker in result.worker_ids), result.worker_ids


def test_a_task_that_writes(atpd):
    from django.contrib.auth.models import Group

    [result] = drain(atpd, tasks.make_group.enqueue("readers"))
    assert result.return_value is False
    assert Group.objects.filter(name="readers").exists()


def test_a_task_is_steered_as_any_type(atpd):
    """A gate of its lane holds it; it is opened, and the task runs."""
    result = tasks.send.enqueue("ann")
    queue.hold("tests.backend.tasks.send", "letters", by="tests")
    other = tasks.add.enqueue(1)
    drain(atpd, result, other)
    assert (result.status, other.status) == ("READY", "SUCCESSFUL")
    queue.open_gate("tests.backend.tasks.send", "letters", by="tests")
    drain(atpd, result)
    assert result.return_value == {"user": "ann", "subject": ""}
    assert Instance.objects.finished().count() == 2


def test_a_coroutine_is_cancelled_where_it_awaits(atpd, flag):
    """Long before its grace is over; nothing is killed."""
    result = tasks.forever.enqueue(str(flag))
    atpd(processes=1, settings={"CANCEL_GRACE": 120})
    wait_for(flag.exists)
    instance = queue.get(result.id)
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    queue.cancel(instance, by="tests")
    instance.wait(DEADLINE)
    result.refresh()
    assert [e.exception_class for e in result.errors] == [exceptions.Cancelled]
    assert instance.lost == 0
