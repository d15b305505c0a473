"""Tests of overload: an enqueue into a full queue is refused or delayed.

A refused enqueue writes nothing, and each user interface refuses it (G13). Limits that operators
set are tested here, too.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import F
from django.urls import path
from rest_framework.decorators import api_view, permission_classes
from rest_framework.exceptions import NotFound

from atp import queue, task_type
from atp.exceptions import DuplicateIdentifier, InvalidLimit, InvalidOption, InvalidType, QueueFull
from atp.models import Instance, Kind, Limit, LogRecord, Schedule, Slot, Span, Statistic, Task, Type
from atp.operations import admission
from atp.operations.registry import registry
from atp.schedules.models import Outcome
from atp.states import State
from atp.store import get_store
from atp.web.overload import exception_handler

from .api.client import Api
from .app.tasks import echo

NAME = "tests.echo"
FULL = "tests.echo is full: 1 wait, and at most 1 may wait there. Try again in"


@pytest.fixture
def declare(monkeypatch, db):
    """Return a function that declares limits of the Type tests.echo and returns the Type."""

    def declare(**limits):
        made = replace(registry.get(NAME), **limits)
        monkeypatch.setitem(registry._types, NAME, made)
        queue.register_all()
        return made

    return declare


def fill(type, count, **options):
    made = type.using(**options).enqueue_many([{}] * count)
    admission.forget_counts()
    return made


def age(seconds):
    Task.objects.update(due_at=F("due_at") - timedelta(seconds=seconds))
    admission.forget_counts()


@pytest.fixture
def full(declare):
    """Yield the Type tests.echo with ``max_waiting=1`` and one waiting Instance."""
    made = declare(max_waiting=1)
    fill(made, 1)
    yield made
    assert Instance.objects.count() == 1


@pytest.mark.each_database
def test_enqueue_into_a_full_queue_is_refused_and_writes_nothing(declare):
    type = declare(max_waiting=10)
    fill(type, 9)
    with pytest.raises(QueueFull, match=r"tests.echo is full: 9 wait, and at most 9 of 10") as full:
        type.enqueue()
    assert (full.value.waiting, full.value.limit, full.value.scope) == (9, 10, NAME)
    assert full.value.oldest >= timedelta(0)
    assert 24 <= full.value.retry_after <= 36  # the queue does not drain
    assert queue.waiting(NAME) == 9


def test_tasks_of_higher_priority_are_accepted_when_lower_ones_are_refused(declare):
    type = declare(max_waiting=10)
    for priority, more in ((-1, 8), (0, 1), (1, 1), (100, 0)):
        fill(type, more, priority=priority)
        with pytest.raises(QueueFull):
            type.using(priority=priority).enqueue()


@pytest.mark.each_database
def test_enqueue_is_refused_if_the_oldest_due_task_is_older_than_max_wait(declare):
    """With both limits, more than ``max_waiting`` are accepted until ``max_wait`` is exceeded."""
    type = declare(max_wait=timedelta(minutes=1))
    fill(type, 3, run_after=timedelta(days=1))
    fill(type, 3)
    type.enqueue()
    age(61)
    with pytest.raises(QueueFull) as full:
        type.enqueue()
    assert full.value.limit is None
    queue.cancel(*Instance.objects.all())
    type = declare(max_waiting=10, max_wait=600)
    fill(type, 50)
    age(300)
    type.enqueue()
    age(301)
    with pytest.raises(QueueFull, match="the oldest has waited 10 min, longer than 10 min"):
        type.enqueue()


def test_batch_is_admitted_as_a_whole_under_the_limit_of_its_type(declare):
    type = declare(max_waiting=10)
    fill(type, 5)
    with pytest.raises(QueueFull):
        type.enqueue_many([{}] * 5)
    assert queue.waiting(NAME) == 5
    type.enqueue_many([{}] * 4)
    other = registry.get("tests.add")
    calls = [queue.Call(task_type=other, args=(1, 2)), queue.Call(task_type=type)]
    with pytest.raises(QueueFull):
        queue.enqueue_calls(calls)
    assert Instance.objects.of_type("tests.add").count() == 0
    with pytest.raises(InvalidOption, match=r"tests.echo can never take 11 Instances at once"):
        type.enqueue_many([{}] * 11)
    # A limit that an operator sets overrides the declared limit.
    queue.limit(NAME, max_waiting=None, by="ann")
    fill(type, 5)
    assert queue.unlimit(NAME).limit.max_waiting == 10


def test_limit_of_one_lane_does_not_affect_another_lane(db):
    """The code declares no limit: the only one is the one that an operator has set."""
    queue.register_all()
    queue.limit(NAME, "a", max_waiting=1)
    fill(echo, 1, collection="a")
    with pytest.raises(QueueFull, match="collection “a” is full"):
        echo.using(collection="a").enqueue()
    echo.using(collection="b").enqueue()


def test_enqueue_into_a_full_queue_still_returns_an_existing_instance(declare):
    type = declare(max_waiting=1)
    first = type.using(identifier="a").enqueue()
    assert type.using(identifier="a", existing="return").enqueue() == first
    with pytest.raises(DuplicateIdentifier):
        type.using(identifier="a").enqueue()
    queue.cancel(first)
    admission.forget_counts()
    first = type.using(unique="a").enqueue()
    assert type.using(unique="a", existing="return").enqueue() == first
    with pytest.raises(QueueFull):
        type.using(identifier="b", existing="return").enqueue()
    # Nor is a redrive refused.
    cancelled = Instance.objects.get(state=State.FAILED)
    queue.redrive(cancelled)
    assert cancelled.state == State.ACCEPTED


def test_retry_after_is_the_overflow_divided_by_the_drain_rate(declare):
    """30 Instances have ended in five minutes, so an overflow of one drains in ten seconds."""
    type = declare(max_waiting=100)
    for one in fill(type, 30):
        queue.cancel(one)
    fill(type, 90)
    with pytest.raises(QueueFull) as full:
        type.enqueue()
    assert 8 <= full.value.retry_after <= 12


def test_enqueue_that_tolerates_a_delay_is_due_later_instead_of_refused(declare):
    type = declare(max_waiting=1).using(on_full="delay", delay_tolerance=10)
    now, later = type.enqueue(), type.enqueue()
    due = [queue.task(each).due_at - each.created for each in (now, later)]
    assert due[0] <= timedelta(seconds=1)
    assert timedelta(seconds=9) <= due[1] <= timedelta(seconds=11)
    # Of a batch, those that do not fit are delayed.
    type = declare(max_waiting=10).using(on_full="delay", delay_tolerance=3600)
    queue.cancel(now, later)
    admission.forget_counts()
    batch = type.enqueue_many([{}] * 15)
    delays = [queue.task(each).due_at - each.created for each in batch]
    assert [delay > timedelta(seconds=5) for delay in delays] == [False] * 9 + [True] * 6
    # The delay never exceeds start_before.
    options = {"delay_tolerance": 3600, "start_before": timedelta(seconds=10)}
    later = type.using(**options).enqueue()
    assert queue.task(later).due_at < later.start_before


@pytest.mark.each_database
def test_log_has_one_record_a_minute_with_the_number_of_refusals(declare):
    """The next record counts the refusals that the last one did not include.

    A refusal stays in the log, although the transaction that counted is rolled back. With
    ``exact``, each enqueue counts again, and enqueues of the open transaction count, too.
    """
    type = declare(max_waiting=2).using(exact=True)
    queue.cancel(type.enqueue())
    with transaction.atomic():
        type.enqueue()
        type.enqueue()
        admission.forget_counts()
        for _ in range(3):
            with pytest.raises(QueueFull):
                type.enqueue()
    assert queue.waiting(NAME) == 2
    [record] = LogRecord.objects.filter(kind=Kind.FULL)
    assert (record.subject, record.detail) == (f"type:{NAME}", "1")
    record.delete()
    of = admission._known["default"].refused
    of.update({key: (count, 0.0) for key, (count, _) in of.items()})
    with pytest.raises(QueueFull):
        type.enqueue()
    assert LogRecord.objects.get(kind=Kind.FULL).detail == "3"


def test_invalid_limits_and_overload_options_are_rejected(db):
    queue.register_all()
    for value in (0, -1, 1.5, "2", True, 1_000_001):
        with pytest.raises(InvalidType, match=r"max_waiting=.*whole number from 1"):
            task_type("tests.bad", max_waiting=value)(lambda context: None)
        with pytest.raises(InvalidLimit, match=r"max_waiting=.*whole number from 1"):
            queue.limit(NAME, max_waiting=value)
    for value in (0, -1, 1.5, "2", True):
        with pytest.raises(InvalidType, match=r"max_running_per_collection=.*whole number from 1"):
            task_type("tests.bad", max_running_per_collection=value)(lambda context: None)
    for value in (0, -1, "10m", True, timedelta(0), 1e12, float("nan")):
        with pytest.raises(InvalidLimit, match="max_wait="):
            queue.limit(NAME, max_wait=value)
    with pytest.raises(InvalidLimit, match="To let nothing in, use a gate"):
        queue.limit(NAME, max_waiting=0)
    with pytest.raises(InvalidLimit, match="for one lane, set max_running"):
        queue.limit(NAME, "a", max_running_per_collection=3)
    for options, sentence in (
        ({"on_full": "dleay", "delay_tolerance": 1}, "Did you mean 'delay'"),
        ({"on_full": "delay"}, "needs delay_tolerance"),
        ({"delay_tolerance": 5}, "needs on_full='delay'"),
        ({"on_full": "delay", "delay_tolerance": "5m"}, "must be seconds"),
        ({"on_full": "delay", "delay_tolerance": -5}, "must be from"),
        ({"exact": "yes"}, "must be True or False"),
    ):
        with pytest.raises(InvalidOption, match=sentence):
            echo.using(**options)
    assert not Limit.objects.filter(type__identifier=NAME).exists()


@pytest.mark.slow
@pytest.mark.each_database
def test_drain_rate_is_measured_from_ended_instances_or_statistics(db):
    """The rate covers five minutes, or the newest of very many Instances.

    Instances that are deleted at their end are counted from the statistics.
    """
    queue.register(echo)
    type, now = Type.objects.get(identifier=NAME), get_store().now()

    def end(count, milliseconds):
        times = (now - timedelta(milliseconds=milliseconds * n) for n in range(count))
        row = {"type": type, "state": State.FINISHED, "created": now}
        Instance.objects.bulk_create([Instance(**row, finished=time) for time in times])

    end(10, 1000)
    assert get_store().filling.drain_rate(NAME, 300.0) == pytest.approx(10 / 300)
    end(10_000, 10)
    rate = get_store().filling.drain_rate(NAME, 300.0)
    wrote = (get_store().now() - now).total_seconds()  # writing the rows delays the measurement
    assert 10_000 / (100 + wrote) <= rate <= 101
    Type.objects.filter(identifier=NAME).update(retention=timedelta(0))
    minute = now.replace(second=0, microsecond=0)
    Statistic.objects.create(span=Span.MINUTE, start=minute, type=NAME, finished=8, failed_error=2)
    assert 10 / 360 <= get_store().filling.drain_rate(NAME, 300.0) <= 10 / 300


def test_page_and_api_show_the_limits_of_a_queue(declare, admin_user, admin_client):
    limits = {"max_running_per_collection": 1, "max_waiting": 5, "max_wait": 600}
    declare(**limits)
    assert "1 of each collection" in admin_client.get(f"/atp/types/{NAME}/").content.decode()
    lane = admin_client.get(f"/atp/types/{NAME}/limit/?collection=a").content.decode()
    assert "max_running_per_collection" not in lane
    [found] = [
        row for row in Api(admin_user).get("limits").json()["results"] if row["type"] == NAME
    ]
    assert limits.items() <= found.items()


def test_each_user_interface_and_a_schedule_report_a_full_queue(full, admin_user, admin_client):
    """The API admits an array of Instances as a whole, or not at all."""
    one = {"type": NAME, "inputs": {}}
    for body in (one, [{"type": "tests.add", "inputs": {"first": 1}}, one]):
        answer = Api(admin_user).post("instances", body)
        assert answer.status_code == 429
        assert answer.json()["type"] == "urn:atp:problem:queue-full"
        assert FULL in answer.json()["detail"]
        assert 24 <= int(answer["Retry-After"]) <= 36
    assert "1 of 1" in admin_client.get(f"/atp/types/{NAME}/").content.decode()
    answer = admin_client.post(f"/atp/types/{NAME}/enqueue/", {"inputs": "{}", "existing": "raise"})
    assert answer.status_code == 429
    assert FULL in answer.content.decode()
    with pytest.raises(CommandError, match=FULL):
        call_command("atp", "enqueue", NAME)
    queue.create_schedule("often", type=NAME, every=1)
    row = Schedule.objects.get(identifier="often")
    get_store().schedules.plan(now=row.due_at, only="often")
    slot = Slot.objects.get(schedule=row)
    assert (slot.outcome, slot.message) == (Outcome.SKIPPED, "tests.echo was full: 1 waited")


def _plain(request):
    registry.get(NAME).enqueue()


async def _asynchronous(request):
    await registry.get(NAME).aenqueue()


urlpatterns = [
    path("plain", _plain),
    path("asynchronous", _asynchronous),
    path("rest", api_view(["POST"])(permission_classes([])(_plain))),
]


def test_view_of_a_project_answers_429_with_retry_after(full, settings, client):
    """A project of REST framework can use the exception handler without the middleware."""
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["atp.web.overload.OverloadMiddleware"]
    for view in ("plain", "asynchronous", "rest"):
        answer = client.post(f"/{view}")
        assert answer.status_code == 429, view
        assert 1 <= int(answer["Retry-After"]) <= 600
        assert NAME not in answer.content.decode()
    settings.MIDDLEWARE = []
    settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": "atp.web.overload.exception_handler"}
    answer = client.post("/rest")
    assert answer.status_code == 429
    told = f"Too many requests wait already. Expected available in {answer['Retry-After']} seconds."
    assert answer.json() == {"detail": told}
    assert exception_handler(NotFound(), {}).status_code == 404
    assert exception_handler(LookupError(), {}) is None
