"""The results of django.tasks show the state of an Instance."""

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
from atp.store.values import ResponseData
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
    """Let the next attempt of the waiting Task fail."""
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, **{"reason": Reason.ERROR, **facts})


def raised(result):
    """Return the classes of the errors of a result."""
    result.refresh()
    return [each.exception_class for each in result.errors]


def test_result_has_the_task_that_was_enqueued(settings):
    """A process can read the result even if its settings no longer allow the queue name."""
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


def test_result_status_follows_the_instance_state(host, enqueued):
    """The value that the task has returned is there only after its success."""
    answer = ResponseData(content_type="application/json", data=b"[1,2]", size=5)
    [case] = host.claim()
    for event, status in (
        (None, TaskResultStatus.READY),
        (Event.START, TaskResultStatus.RUNNING),
        (Event.PAUSE, TaskResultStatus.RUNNING),
        (Event.RESUME, TaskResultStatus.RUNNING),
        (Event.FINISH, TaskResultStatus.SUCCESSFUL),
    ):
        if event:
            host.move(case, event, **{"response": answer} if event == Event.FINISH else {})
        enqueued.refresh()
        assert enqueued.status == status
        assert enqueued.is_finished is (status == "SUCCESSFUL")
        if not enqueued.is_finished:
            with pytest.raises(ValueError, match="not finished"):
                _ = enqueued.return_value
    assert enqueued.return_value == [1, 2]
    failed = tasks.add.enqueue(1)
    fail(host)
    failed.refresh()
    with pytest.raises(ValueError, match="failed"):
        _ = failed.return_value
    assert set(STATUS) == set(State)


def test_result_has_times_and_workers_of_all_attempts(host, enqueued):
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


def test_result_has_an_error_for_each_attempt_that_raised(host, enqueued):
    facts = {"message": "Traceback …\nValueError: no", "detail": "builtins.ValueError"}
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.RETRY, delay=timedelta(0), **facts)
    fail(host, **facts)
    assert raised(enqueued) == [ValueError, ValueError]
    assert enqueued.errors[0].traceback == "Traceback …\nValueError: no\n"
    assert enqueued.status == TaskResultStatus.FAILED
    # The errors and attempts from before a redrive stay.
    queue.redrive(enqueued.id)
    enqueued.refresh()
    assert (enqueued.status, enqueued.finished_at) == (TaskResultStatus.READY, None)
    [case] = host.claim()
    host.move(case, Event.START, Event.FINISH)
    assert raised(enqueued) == [ValueError, ValueError]
    assert (enqueued.status, enqueued.attempts) == (TaskResultStatus.SUCCESSFUL, 3)
    # The path of a class may be longer than its column in the log.
    long = tasks.add.enqueue(1)
    path = f"{tasks.__name__}.AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP"
    text = f"Traceback …\n  {path}()\n{path}: too long\n  {path}"
    fail(host, message=text, detail=path[:64])
    [found] = raised(long)
    assert long.errors[0].exception_class_path == path
    assert issubclass(found, Exception)


def test_each_reason_but_error_and_fatal_has_its_own_exception_in_the_result(host):
    for reason in sorted(results.EXCEPTION_OF_REASON):
        result = tasks.add.enqueue(1)
        fail(host, reason=reason, message="for that")
        [found] = raised(result)
        assert issubclass(found, exceptions.TaskFailed)
        assert found.__name__ == reason.capitalize()
        assert result.errors[0].traceback == "for that\n"
    assert set(Reason) - set(results.EXCEPTION_OF_REASON) == {Reason.ERROR, Reason.FATAL}


def test_get_result_rejects_unknown_ids_and_undeclared_types(enqueued, monkeypatch):
    """The task is not imported by the name in the database (G14)."""
    for id in ("123", "", 5, None, "x" * 100, str(uuid4())):
        with pytest.raises(error("TaskResultDoesNotExist")):
            tasks.add.get_result(id)
    with pytest.raises(error("TaskResultDoesNotExist"), match="declares no task for that Type"):
        tasks.add.get_result(str(echo.enqueue().uuid))
    with pytest.raises(error("TaskResultMismatch")):
        tasks.fails.get_result(enqueued.id)
    monkeypatch.delitem(task._declared, ADD)
    with pytest.raises(error("TaskResultDoesNotExist"), match=f"'{ADD}', but this process"):
        tasks.add.get_result(enqueued.id)
