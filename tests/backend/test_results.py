"""Results: what the queue tells of an Instance, in the words of django.tasks."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from atp import exceptions, queue
from atp.backend import declared, errors
from atp.backend.frameworks import TaskResultStatus, error
from atp.models import LogRecord
from atp.states import Event, Reason, State
from atp.store.values import Move, ResponseData

from . import tasks

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]
ADD = "tests.backend.tasks.add"


@pytest.fixture
def enqueued():
    return tasks.add.enqueue(1, 2)


@pytest.fixture
def host(world):
    return world.host(ADD)


def test_a_result_from_any_process_is_the_one_that_was_returned(enqueued):
    assert tasks.add.get_result(enqueued.id) == enqueued


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 9},
        {"queue_name": "letters"},
        {"identifier": "a", "created_by": "ann"},
        {"run_after": timezone.now() + timedelta(days=1)},
        {"run_after": timezone.now() - timedelta(days=1)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_the_task_of_a_result_is_the_one_that_was_enqueued(changes):
    result = tasks.add.using(**changes).enqueue(1)
    assert tasks.add.get_result(result.id).task == tasks.add.using(**changes) == result.task


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], TaskResultStatus.READY),
        ([Event.START], TaskResultStatus.RUNNING),
        ([Event.START, Event.PAUSE], TaskResultStatus.RUNNING),
        ([Event.START, Event.PAUSE, Event.RESUME], TaskResultStatus.RUNNING),
        ([Event.START, Event.RETRY], TaskResultStatus.READY),
        ([Event.START, Event.FINISH], TaskResultStatus.SUCCESSFUL),
        ([Event.START, Event.FAIL], TaskResultStatus.FAILED),
    ],
)
def test_the_status(host, enqueued, events, status):
    [case] = host.claim()
    for event in events:
        host.move(case, event, reason=Reason.ERROR if event == Event.FAIL else "")
    enqueued.refresh()
    assert enqueued.status == status
    assert enqueued.is_finished is (status in ("SUCCESSFUL", "FAILED"))


def test_every_state_has_a_status():
    from atp.backend.results import STATUS

    assert set(STATUS) == set(State)


def test_times_and_workers(host, enqueued):
    """The first and the last start, and who it was each time."""
    [case] = host.claim()
    host.move(case, Event.START, Event.RETRY, who="host:1 worker 0", delay=timedelta(0))
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


def test_no_return_value_of_what_failed(host, enqueued):
    [case] = host.claim()
    host.move(case, Event.START, Event.FAIL, reason=Reason.ERROR)
    enqueued.refresh()
    with pytest.raises(ValueError, match="failed"):
        _ = enqueued.return_value


def test_an_error_for_each_attempt_that_raised(host, enqueued):
    facts = {"message": "Traceback …\nValueError: no", "detail": "builtins.ValueError"}
    for event in (Event.RETRY, Event.FAIL):
        [case] = host.claim()
        host.move(case, Event.START)
        reason = Reason.ERROR if event == Event.FAIL else ""
        host.move(case, event, reason=reason, delay=timedelta(0), **facts)
    enqueued.refresh()
    assert [each.exception_class for each in enqueued.errors] == [ValueError, ValueError]
    assert enqueued.errors[0].traceback == "Traceback …\nValueError: no\n"


def test_a_class_whose_path_is_longer_than_the_column(host, enqueued):
    path = f"{tasks.__name__}.AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP"
    text = f"Traceback …\n  {path}()\n{path}: too long\n  {path}"
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR, message=text, detail=path[:64])
    enqueued.refresh()
    [found] = enqueued.errors
    assert found.exception_class_path == path
    assert issubclass(found.exception_class, Exception)


@pytest.mark.parametrize("reason", sorted(errors.CLASSES))
def test_an_error_for_another_reason(host, enqueued, reason):
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=reason, message="for that")
    enqueued.refresh()
    [found] = enqueued.errors
    assert issubclass(found.exception_class, exceptions.TaskFailed)
    assert found.exception_class.__name__ == reason.capitalize()
    assert found.traceback == "for that\n"


def test_every_reason_has_a_class():
    assert set(Reason) - set(errors.CLASSES) == {Reason.ERROR, Reason.FATAL}


def test_cancelled(enqueued):
    queue.cancel(enqueued.id, by="ann")
    enqueued.refresh()
    assert enqueued.status == TaskResultStatus.FAILED
    assert [e.exception_class for e in enqueued.errors] == [exceptions.Cancelled]


def test_a_failure_that_was_recorded_before_the_log_named_classes(host, enqueued):
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR, message="ValueError: no")
    enqueued.refresh()
    assert [e.exception_class for e in enqueued.errors] == [Exception]


def test_redriven_and_well(world, host, enqueued):
    """The errors stay, as the attempts do."""
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR, message="no", detail="builtins.KeyError")
    queue.redrive(enqueued.id)
    enqueued.refresh()
    assert (enqueued.status, enqueued.finished_at) == (TaskResultStatus.READY, None)
    [case] = host.claim()
    host.move(case, Event.START, Event.FINISH)
    enqueued.refresh()
    assert enqueued.status == TaskResultStatus.SUCCESSFUL
    assert [e.exception_class for e in enqueued.errors] == [KeyError]
    assert enqueued.attempts == 2


@pytest.mark.parametrize("id", ["123", "", 5, None, "x" * 100])
def test_an_id_that_is_none(id):
    with pytest.raises(error("TaskResultDoesNotExist")):
        tasks.add.get_result(id)


def test_an_id_of_nothing():
    with pytest.raises(error("TaskResultDoesNotExist")):
        tasks.add.get_result(str(uuid4()))


def test_a_result_of_another_task(enqueued):
    with pytest.raises(error("TaskResultMismatch")):
        tasks.fails.get_result(enqueued.id)


def test_a_type_that_this_process_does_not_declare(enqueued, monkeypatch):
    """G14: nothing that the database names is imported."""
    monkeypatch.delitem(declared._declared, ADD)
    with pytest.raises(error("TaskResultDoesNotExist"), match=f"'{ADD}', for which this process"):
        tasks.add.get_result(enqueued.id)


def test_a_type_that_is_no_task():
    from tests.app.tasks import echo

    with pytest.raises(error("TaskResultDoesNotExist"), match="it is no task of"):
        tasks.add.get_result(str(echo.enqueue().uuid))


def test_naive_times_without_time_zones(settings, enqueued):
    settings.USE_TZ = False
    result = tasks.add.get_result(enqueued.id)
    assert timezone.is_naive(result.enqueued_at)


def test_what_a_settings_change_forbids_can_still_be_read(settings):
    result = tasks.add.using(queue_name="old").enqueue(1)
    settings.TASKS = {"default": {"BACKEND": "atp.backend.ATPBackend", "QUEUES": ["default"]}}
    assert tasks.add.get_result(result.id).task.queue_name == "old"


def test_a_node_of_a_graph_that_waits_has_no_run_after(enqueued):
    from atp.models import Task
    from atp.rows.task import BLOCKED

    Task.objects.update(due_at=BLOCKED)
    assert tasks.add.get_result(enqueued.id).task.run_after is None


def test_a_lost_attempt_is_no_error_unless_it_was_the_last(world, host, enqueued):
    for attempt in range(1, 6):
        [case] = host.claim()
        host.move(case, Event.START)
        lost = Move(event=Event.EXPIRE, instance=case.instance, attempt=attempt, message="died")
        assert host.record(lost) == []
        enqueued.refresh()
        if enqueued.is_finished:
            break
        assert enqueued.errors == []
    assert [e.exception_class for e in enqueued.errors] == [exceptions.Stale]
    assert enqueued.attempts == 4
