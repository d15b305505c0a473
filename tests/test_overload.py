"""Overload: an enqueue that finds too many waiting is refused, or delayed; nothing is written."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction

from atp import queue
from atp.exceptions import (
    DuplicateIdentifier,
    InvalidLimit,
    InvalidOption,
    InvalidType,
    QueueFull,
)
from atp.models import Instance, Limit, LogRecord, Statistic, Task, Type
from atp.rows.log import Kind
from atp.rows.statistic import Span
from atp.states import Event
from atp.store import get_store
from atp.store.common.control import filling
from atp.verbs.overload import known
from atp.verbs.registry import registry

from .app.tasks import echo

pytestmark = pytest.mark.each_database
NAME = "tests.echo"


@pytest.fixture
def declare(monkeypatch, db):
    """Declare limits of the Type tests.echo; returns the Type."""

    def declare(**limits):
        made = replace(registry.get(NAME), **limits)
        monkeypatch.setitem(registry._types, NAME, made)
        queue.register_all()
        return made

    return declare


def fill(type, count, **options):
    made = type.using(**options).enqueue_many([{} for _ in range(count)])
    known.forget()
    return made


def age(seconds):
    for task in Task.objects.all():
        Task.objects.filter(pk=task.pk).update(due_at=task.due_at - timedelta(seconds=seconds))
    known.forget()


def test_what_does_not_fit_is_refused_and_nothing_is_written(declare):
    type = declare(max_waiting=10)
    fill(type, 9)
    with pytest.raises(QueueFull, match=r"tests.echo is full: 9 wait, and at most 9 of 10") as full:
        type.enqueue()
    assert (full.value.waiting, full.value.limit, full.value.scope) == (9, 10, NAME)
    assert full.value.oldest >= timedelta(0)
    assert 24 <= full.value.retry_after <= 36  # nothing drains
    assert queue.waiting(NAME) == 9


def test_own_enqueues_are_added_to_what_was_counted(declare):
    type = declare(max_waiting=10)
    for _ in range(9):
        type.enqueue()
    with pytest.raises(QueueFull):
        type.enqueue()
    assert queue.waiting(NAME) == 9


@pytest.mark.parametrize(("priority", "room"), [(-1, 8), (0, 9), (1, 10), (100, 10)])
def test_a_higher_priority_has_what_a_lower_one_leaves(declare, priority, room):
    type = declare(max_waiting=10)
    fill(type, room, priority=priority)
    with pytest.raises(QueueFull):
        type.using(priority=priority).enqueue()


def test_one_may_wait_where_one_may(declare):
    type = declare(max_waiting=1)
    type.enqueue()
    with pytest.raises(QueueFull):
        type.enqueue()


def test_a_spike_of_five_times_passes_while_it_is_worked_off(declare):
    type = declare(max_waiting=10, max_wait=600)
    fill(type, 50)
    age(300)
    type.enqueue()
    age(301)
    with pytest.raises(QueueFull, match="the oldest has waited 10 min, longer than 10 min"):
        type.enqueue()


def test_max_wait_alone_looks_at_what_is_due(declare):
    type = declare(max_wait=timedelta(minutes=1))
    fill(type, 3, run_after=timedelta(days=1))
    fill(type, 3)
    type.enqueue()
    age(61)
    with pytest.raises(QueueFull) as full:
        type.enqueue()
    assert full.value.limit is None


def test_an_operator_limits_a_lane_and_no_other(db):
    queue.register_all()
    queue.limit(NAME, "a", max_waiting=1)
    echo.using(collection="a").enqueue()
    with pytest.raises(QueueFull, match="collection “a” is full"):
        echo.using(collection="a").enqueue()
    echo.using(collection="b").enqueue()


def test_what_an_operator_sets_goes_before_what_code_declares(declare):
    type = declare(max_waiting=1)
    queue.limit(NAME, max_waiting=None, by="ann")
    fill(type, 5)
    assert queue.unlimit(NAME).limit.max_waiting == 1
    with pytest.raises(QueueFull):
        type.enqueue()


def test_many_are_let_in_all_or_none(declare):
    type = declare(max_waiting=10)
    fill(type, 5)
    with pytest.raises(QueueFull):
        type.enqueue_many([{}] * 5)
    assert queue.waiting(NAME) == 5
    type.enqueue_many([{}] * 4)


def test_more_than_ever_fit_is_no_matter_of_time(declare):
    type = declare(max_waiting=10)
    with pytest.raises(InvalidOption, match=r"11 at once never fit into tests.echo"):
        type.enqueue_many([{}] * 11)


def test_calls_of_many_types_are_let_in_all_or_none(declare):
    type = declare(max_waiting=1)
    type.enqueue()
    other = registry.get("tests.add")
    calls = [
        queue.Call(task_type=other, args=(1, 2)),
        queue.Call(task_type=type),
    ]
    with pytest.raises(QueueFull):
        queue.enqueue_calls(calls)
    assert Instance.objects.of_type("tests.add").count() == 0


def test_an_identifier_that_exists_answers_its_instance(declare):
    type = declare(max_waiting=1)
    first = type.using(identifier="a").enqueue()
    assert type.using(identifier="a", existing="return").enqueue() == first
    with pytest.raises(DuplicateIdentifier):
        type.using(identifier="a").enqueue()
    with pytest.raises(QueueFull):
        type.using(identifier="b", existing="return").enqueue()


def test_a_unique_key_that_is_live_answers_its_instance(declare):
    type = declare(max_waiting=1)
    first = type.using(unique="a").enqueue()
    assert type.using(unique="a", existing="return").enqueue() == first


def test_retry_after_is_what_is_too_much_by_what_drains(declare):
    """30 have ended in five minutes, so that what is one too many has gone in ten seconds."""
    type = declare(max_waiting=100)
    for one in fill(type, 30):
        queue.cancel(one)
    fill(type, 90)
    with pytest.raises(QueueFull) as full:
        type.enqueue()
    assert 8 <= full.value.retry_after <= 12


def test_what_tolerates_a_delay_is_due_later_and_never_dropped(declare):
    type = declare(max_waiting=1).using(on_full="delay", delay_tolerance=10)
    now, later = type.enqueue(), type.enqueue()
    due = [queue.task(each).due_at - each.created for each in (now, later)]
    assert due[0] <= timedelta(seconds=1)
    assert timedelta(seconds=9) <= due[1] <= timedelta(seconds=11)


def test_a_delay_never_misses_start_before(declare):
    type = declare(max_waiting=1).using(
        on_full="delay", delay_tolerance=3600, start_before=timedelta(seconds=10)
    )
    type.enqueue()
    later = type.enqueue()
    assert queue.task(later).due_at < later.start_before


def test_of_many_those_are_delayed_that_do_not_fit(declare):
    type = declare(max_waiting=10).using(on_full="delay", delay_tolerance=3600)
    made = type.enqueue_many([{}] * 15)
    due = [queue.task(each).due_at > each.created + timedelta(seconds=5) for each in made]
    assert due == [False] * 9 + [True] * 6


def test_what_runs_again_is_not_refused(declare, host):
    type = declare(max_waiting=1)
    first = type.enqueue()
    queue.cancel(first)
    known.forget()
    type.enqueue()
    queue.redrive(first)
    assert queue.get(first.uuid).state == "ACCEPTED"


def test_exact_counts_anew(declare):
    type = declare(max_waiting=2).using(exact=True)
    type.enqueue()
    queue.cancel(Instance.objects.get())
    type.enqueue()
    type.enqueue()
    with pytest.raises(QueueFull):
        type.enqueue()


def test_what_exact_refuses_is_recorded(declare):
    """Though what it refuses rolls back the transaction in which it was counted."""
    type = declare(max_waiting=1).using(exact=True)
    type.enqueue()
    with pytest.raises(QueueFull):
        type.enqueue()
    [record] = LogRecord.objects.filter(kind=Kind.FULL)
    assert (record.subject, record.detail) == (f"type:{NAME}", "1")


def test_inside_a_transaction_its_own_enqueues_count(declare):
    type = declare(max_waiting=3)
    with transaction.atomic():
        for _ in range(3):
            type.enqueue()
        known.forget()
        with pytest.raises(QueueFull):
            type.enqueue()
    assert queue.waiting(NAME) == 3


def test_one_record_a_minute_says_how_many_were_refused(declare):
    type = declare(max_waiting=1)
    type.enqueue()
    for _ in range(3):
        with pytest.raises(QueueFull):
            type.enqueue()
    [record] = LogRecord.objects.filter(kind=Kind.FULL)
    assert (record.subject, record.detail) == (f"type:{NAME}", "1")


def test_the_next_record_has_those_that_were_not_told(declare, monkeypatch):
    type = declare(max_waiting=1)
    type.enqueue()
    for _ in range(3):
        with pytest.raises(QueueFull):
            type.enqueue()
    LogRecord.objects.filter(kind=Kind.FULL).delete()
    of = known._known["default"].refused
    of.update({key: (count, 0.0) for key, (count, _) in of.items()})
    with pytest.raises(QueueFull):
        type.enqueue()
    assert LogRecord.objects.get(kind=Kind.FULL).detail == "3"


def test_a_type_without_limits_is_not_looked_at(db, monkeypatch):
    queue.register_all()
    echo.enqueue()
    monkeypatch.setattr(type(get_store()), "fills", None)
    monkeypatch.setattr(type(get_store()), "bounded", None)
    echo.enqueue()


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, 1_000_001])
def test_a_bad_number_is_refused(db, value):
    from atp import task_type

    with pytest.raises(InvalidType, match=r"max_waiting=.*whole number from 1"):
        task_type("tests.bad", max_waiting=value)(lambda context: None)
    queue.register_all()
    with pytest.raises(InvalidLimit, match=r"max_waiting=.*whole number from 1"):
        queue.limit(NAME, max_waiting=value)
    assert not Limit.objects.filter(type__identifier=NAME).exists()


def test_nothing_let_in_is_a_gate(db):
    queue.register_all()
    with pytest.raises(InvalidLimit, match="To let nothing in, use a gate"):
        queue.limit(NAME, max_waiting=0)


@pytest.mark.parametrize("value", [0, -1, "10m", True, timedelta(0), 1e12, float("nan")])
def test_a_bad_time_is_refused(db, value):
    queue.register_all()
    with pytest.raises(InvalidLimit, match="max_wait="):
        queue.limit(NAME, max_wait=value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_full": "dleay", "delay_tolerance": 1}, "Did you mean 'delay'"),
        ({"on_full": "delay"}, "needs delay_tolerance"),
        ({"delay_tolerance": 5}, "needs on_full='delay'"),
        ({"on_full": "delay", "delay_tolerance": "5m"}, "must be seconds"),
        ({"on_full": "delay", "delay_tolerance": -5}, "must be from"),
        ({"exact": "yes"}, "must be True or False"),
    ],
)
def test_a_bad_option_is_refused(options, sentence):
    with pytest.raises(InvalidOption, match=sentence):
        echo.using(**options)


class TestDrainRate:
    @pytest.fixture
    def ended(self, world, host):
        """Ten Instances of tests.echo that ended lately, a second after each other."""
        echo.enqueue_many([{}] * 10)
        for case in host.claim():
            host.move(case, Event.START, Event.FINISH)
        now = world.store.now()
        for number, row in enumerate(Instance.objects.all()):
            row.finished = now - timedelta(seconds=number)
            row.save(update_fields=["finished"])
        return world.store

    def test_it_is_that_of_five_minutes(self, ended):
        assert ended.drain_rate(NAME, 300.0) == pytest.approx(10 / 300)

    def test_of_very_many_it_is_that_of_the_newest(self, ended, monkeypatch):
        monkeypatch.setattr(filling, "COUNTED", 5)
        assert ended.drain_rate(NAME, 300.0) == pytest.approx(5 / 4, rel=0.5)

    def test_of_what_is_not_kept_it_is_as_daemons_have_counted(self, ended):
        Type.objects.filter(identifier=NAME).update(retention=timedelta(0))
        minute = ended.now().replace(second=0, microsecond=0)
        Statistic.objects.create(
            span=Span.MINUTE, start=minute, type=NAME, finished=8, failed_error=2
        )
        assert ended.drain_rate(NAME, 300.0) >= 10 / 360
