"""Results: what the queue tells of an Instance, in the words of django.tasks."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from atp import exceptions, queue
from atp.backend import results, task
from atp.backend.frameworks import TaskResultStatus, error
from atp.backend.results import STATUS
from atp.models import BLOCKED, LogRecord, Task
from atp.states import Event, Reason, State
from atp.store.values import Move, ResponseData
from tests.app.tasks import echo

from . import tasks

pytestmark = pytest.mark.django_db
ADD = "tests.backend.tasks.add"
SOON = timedelta(days=1)


@pytest.fixture
def enqueued():
    return tasks.add.enqueue(1, 2)


@pytest.fixture
def host(world):
    return world.host(ADD)


def fail(host, **facts):
    """Let what waits fail in its next attempt."""
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, **{"reason": Reason.ERROR, **facts})


def raised(result):
    """Return the classes of the errors that it has now."""
    result.refresh()
    return [each.exception_class for each in result.errors]


def test_the_task_of_a_result_is_the_one_that_was_enqueued(settings):
    """From any process, and also where the settings forbid its queue by now."""
    for changes in (
        {},
        {"priority": 9, "queue_name": "letters", "identifier": "a", "created_by": "ann"},
        {"run_after": timezone.now() + SOON},
        {"run_after": timezone.now() - SOON},
    ):
        result = tasks.add.using(**changes).enqueue(1)
        found = tasks.add.get_result(result.id)
        assert found == result
        assert found.task == tasks.add.using(**changes) == result.task
    result = tasks.add.using(queue_name="old").enqueue(1)
    Task.objects.update(due_at=BLOCKED)  # as a node of a graph that waits for another
    assert tasks.add.get_result(result.id).task.run_after is None
    settings.TASKS = {"default": {"BACKEND": "atp.backend.ATPBackend", "QUEUES": ["default"]}}
    assert tasks.add.get_result(result.id).task.queue_name == "old"
    settings.USE_TZ = False
    assert timezone.is_naive(tasks.add.get_result(result.id).enqueued_at)


def test_the_status(host, enqueued):
    [case] = host.claim()
    for event, status in (
        (None, TaskResultStatus.READY),
        (Event.START, TaskResultStatus.RUNNING),
        (Event.PAUSE, TaskResultStatus.RUNNING),
        (Event.RESUME, TaskResultStatus.RUNNING),
        (Event.FINISH, TaskResultStatus.SUCCESSFUL),
    ):
        if event:
            host.move(case, event)
        enqueued.refresh()
        assert enqueued.status == status
        assert enqueued.is_finished is (status == "SUCCESSFUL")
    assert set(STATUS) == set(State)


def test_times_and_workers(host, enqueued):
    """The first and the last start, and who it was each time."""
    [case] = host.claim()
    host.move(case, Event.START, Event.RETRY, who="host:1 worker 0", delay=timedelta(0))
    enqueued.refresh()
    assert enqueued.status == TaskResultStatus.READY
    [case] = host.claim()
    host.move(case, Event.START, Event.FINISH, who="host:2 worker 5")
    enqueued.refresh()
    instance = queue.get(enqueued.id)
    first, last = LogRecord.objects.filter(kind=Event.START).in_order()
    assert enqueued.worker_ids == ["host:1 worker 0", "host:2 worker 5"]
    assert enqueued.attempts == 2
    assert (enqueued.started_at, enqueued.last_attempted_at) == (first.time, last.time)
    assert (enqueued.enqueued_at, enqueued.finished_at) == (instance.created, instance.finished)


def test_the_return_value(host, enqueued):
    with pytest.raises(ValueError, match="not finished"):
        _ = enqueued.return_value
    [case] = host.claim()
    answer = ResponseData(content_type="application/json", data=b"[1,2]", size=5)
    host.move(case, Event.START)
    host.move(case, Event.FINISH, response=answer)
    enqueued.refresh()
    assert enqueued.return_value == [1, 2]
    failed = tasks.add.enqueue(1)
    fail(host)
    failed.refresh()
    with pytest.raises(ValueError, match="failed"):
        _ = failed.return_value


def test_an_error_for_each_attempt_that_raised(host, enqueued):
    facts = {"message": "Traceback …\nValueError: no", "detail": "builtins.ValueError"}
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.RETRY, delay=timedelta(0), **facts)
    fail(host, **facts)
    assert raised(enqueued) == [ValueError, ValueError]
    assert enqueued.errors[0].traceback == "Traceback …\nValueError: no\n"
    assert enqueued.status == TaskResultStatus.FAILED
    # The path of a class may be longer than its column in the log.
    long = tasks.add.enqueue(1)
    path = f"{tasks.__name__}.AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP"
    text = f"Traceback …\n  {path}()\n{path}: too long\n  {path}"
    fail(host, message=text, detail=path[:64])
    [found] = raised(long)
    assert long.errors[0].exception_class_path == path
    assert issubclass(found, Exception)


def test_an_error_for_another_reason(host):
    for reason in sorted(results.EXCEPTION_OF_REASON):
        result = tasks.add.enqueue(1)
        fail(host, reason=reason, message="for that")
        [found] = raised(result)
        assert issubclass(found, exceptions.TaskFailed)
        assert found.__name__ == reason.capitalize()
        assert result.errors[0].traceback == "for that\n"
    assert set(Reason) - set(results.EXCEPTION_OF_REASON) == {Reason.ERROR, Reason.FATAL}


def test_redriven_and_well(world, host, enqueued):
    """The errors stay, as the attempts do."""
    fail(host, message="no", detail="builtins.KeyError")
    queue.redrive(enqueued.id)
    enqueued.refresh()
    assert (enqueued.status, enqueued.finished_at) == (TaskResultStatus.READY, None)
    [case] = host.claim()
    host.move(case, Event.START, Event.FINISH)
    assert raised(enqueued) == [KeyError]
    assert enqueued.status == TaskResultStatus.SUCCESSFUL
    assert enqueued.attempts == 2


def test_an_id_of_nothing(enqueued):
    for id in ("123", "", 5, None, "x" * 100, str(uuid4())):
        with pytest.raises(error("TaskResultDoesNotExist")):
            tasks.add.get_result(id)
    with pytest.raises(error("TaskResultDoesNotExist"), match="it is not a task of"):
        tasks.add.get_result(str(echo.enqueue().uuid))
    with pytest.raises(error("TaskResultMismatch")):
        tasks.fails.get_result(enqueued.id)


def test_a_type_that_this_process_does_not_declare(enqueued, monkeypatch):
    """G14: nothing that the database names is imported."""
    monkeypatch.delitem(task._declared, ADD)
    with pytest.raises(error("TaskResultDoesNotExist"), match=f"'{ADD}', for which this process"):
        tasks.add.get_result(enqueued.id)


def test_a_lost_attempt_is_no_error_unless_it_was_the_last(host, enqueued):
    for attempt in range(1, 6):
        [case] = host.claim()
        host.move(case, Event.START)
        lost = Move(event=Event.EXPIRE, instance=case.instance, attempt=attempt, message="died")
        assert host.record(lost) == []
        found = raised(enqueued)
        if enqueued.is_finished:
            break
        assert found == []
    assert found == [exceptions.Stale]
    assert enqueued.attempts == 4
