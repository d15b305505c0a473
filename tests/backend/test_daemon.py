"""A real atpd runs tasks of django.tasks."""

from django.contrib.auth.models import Group

from atp import exceptions, queue
from atp.backend.frameworks import TaskResultStatus
from atp.models import Kind, LogRecord
from atp.states import State
from tests.helpers import DEADLINE, wait_for

from . import tasks


def ended(*results):
    """Wait until the Instances of the results have ended, and refresh the results."""
    for result in results:
        queue.get(result.id).wait(DEADLINE)
        result.refresh()
    return results


def raised(result):
    return [each.exception_class for each in result.errors]


def test_daemon_runs_django_tasks_and_records_their_results(atpd, flag):
    """A result reports how its task ended (G2), even if the task killed its worker (G5)."""
    lost = tasks.exits.enqueue()
    daemon = atpd(processes=1, settings={"MAX_RESTARTS": 1, "CANCEL_GRACE": 120})
    ended(lost)
    assert raised(lost) == [exceptions.Stale]
    assert lost.attempts >= 2
    # Each start is signed by its worker, also those of attempts that run alone.
    assert all(" worker " in worker for worker in lost.worker_ids), lost.worker_ids

    good = [tasks.add.enqueue(1, 2), tasks.later.enqueue(3), tasks.make_group.enqueue("readers")]
    context = tasks.who.enqueue()
    bad = [tasks.fails.enqueue(), tasks.leaves.enqueue(), tasks.strange.enqueue()]
    bad += [tasks.fatal.enqueue(), tasks.fails_at_length.enqueue(), tasks.stubborn.enqueue()]
    ended(*good, context, *bad)
    assert [result.return_value for result in good] == [3, 4, False]
    assert Group.objects.filter(name="readers").exists()
    assert context.return_value["id"] == context.id
    assert context.return_value["workers"] == context.worker_ids
    assert [raised(result) for result in bad] == [
        [ValueError],
        [SystemExit],
        [TypeError],
        [exceptions.Fatal],
        [tasks.AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP],
        [KeyError, KeyError, KeyError],
    ]
    assert {result.status for result in bad} == {TaskResultStatus.FAILED}
    assert bad[0].errors[0].traceback.endswith("\nValueError: went wrong\n")
    assert bad[-1].attempts == 3

    # A coroutine is cancelled where it awaits, long before its grace is over; nothing is killed.
    result = tasks.forever.enqueue(str(flag))
    instance = queue.get(result.id)
    wait_for(flag.exists)
    wait_for(lambda: instance.refresh_from_db() or instance.state == State.RUNNING)
    queue.cancel(instance, by="tests")
    ended(result)
    assert raised(result) == [exceptions.Cancelled]
    instance.refresh_from_db()
    assert instance.lost == 0
    assert daemon.stop() == 0
    assert not LogRecord.objects.filter(kind=Kind.MESSAGE).exists()
