"""The checkpoints of handlers in the store: fence, repetition, limits (G4, G13, G17)."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.exceptions import InvalidStep, TaskGone, TooLarge
from atp.models import Instance, Step, Task, Type
from atp.payload import codec
from atp.rows.log import Kind
from atp.states import Event, State
from atp.store.values import Move
from atp.words import attempt_messages

from ..nonsense import tells
from .world import World

RESULT = codec.Payload(codec.JSON, "5")


@pytest.fixture
def host(world: World):
    return world.host()


@pytest.fixture
def case(world, host):
    """A Task that runs under its first attempt."""
    return world.bring_to(State.RUNNING, host)


@pytest.fixture
def steps(world):
    return world.store.steps


def again(world, host, case):
    """Claim it once more, and return the number of that attempt."""
    lost = Move(event=Event.RELEASE, instance=case.instance, attempt=case.attempt)
    assert host.record(lost) == []
    [claimed] = host.claim()
    assert claimed.instance == case.instance
    return claimed.attempt


def repeated(case):
    records = Instance.objects.get(pk=case.instance).log.filter(kind=Kind.STEP)
    return list(records.values_list("attempt", "detail"))


def test_it_is_begun_and_kept(steps, case):
    key = case.instance, case.attempt
    assert steps.find(case.instance, "a") is None
    assert not steps.begin(*key, "a").is_done
    assert not steps.find(case.instance, "a").is_done
    assert steps.keep(*key, "a", RESULT)
    found = steps.find(case.instance, "a")
    assert (found.is_done, found.value) == (True, 5)
    assert steps.begin(*key, "a").value == 5


def test_one_that_was_not_begun_is_kept_with_the_time_that_it_took(steps, case):
    steps.keep(case.instance, case.attempt, "a", RESULT, took=timedelta(seconds=7))
    row = Step.objects.get()
    assert row.finished - row.started == timedelta(seconds=7)


def test_a_repetition_is_logged_once_for_each_attempt(world, steps, host, case):
    """G17."""
    steps.begin(case.instance, case.attempt, "a")
    second = again(world, host, case)
    steps.begin(case.instance, second, "a", who="somebody")
    assert repeated(case) == [(2, "a")]
    steps.begin(case.instance, second, "a")
    assert repeated(case) == [(2, "a")]
    assert Step.objects.get().attempt == 2


def test_what_was_kept_is_not_repeated(world, steps, host, case):
    """G17."""
    steps.begin(case.instance, case.attempt, "a")
    steps.keep(case.instance, case.attempt, "a", RESULT)
    second = again(world, host, case)
    assert steps.begin(case.instance, second, "a").is_done
    assert repeated(case) == []


def test_a_detail_fits_its_column(world, steps, host, case):
    name = "a" * 200
    steps.begin(case.instance, case.attempt, name)
    steps.begin(case.instance, again(world, host, case), name)
    assert repeated(case) == [(2, "a" * 64)]
    told = Instance.objects.get().log.get(kind=Kind.STEP).message
    assert tells(told, attempt_messages.step_repeated(name, 1))


class TestFence:
    """G4: only the attempt under which the Task is held."""

    def test_a_later_attempt_has_it(self, world, steps, host, case):
        again(world, host, case)
        for write in writes(steps, case):
            with pytest.raises(TaskGone):
                write()
        assert not Step.objects.exists()

    def test_it_waits(self, world, steps, host, case):
        lost = Move(event=Event.RELEASE, instance=case.instance, attempt=case.attempt)
        assert host.record(lost) == []
        for write in writes(steps, case):
            with pytest.raises(TaskGone):
                write()

    def test_it_has_ended(self, world, steps, host, case):
        done = Move(event=Event.FINISH, instance=case.instance, attempt=case.attempt)
        assert host.record(done) == []
        for write in writes(steps, case):
            with pytest.raises(TaskGone):
                write()
        assert not Step.objects.exists()

    def test_another_identity_of_its_daemon_has_it(self, world, steps, host, case):
        """The number of an attempt is given out once."""
        other = world.host(name="other")
        Task.objects.update(daemon=other.row)
        assert steps.begin(case.instance, case.attempt, "a") is not None
        Task.objects.update(daemon=host.row)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no locks of rows")
def test_a_task_that_is_locked_is_not_waited_for(world, steps, case):
    """G9."""
    from tests.helpers import Thread

    with transaction.atomic():
        Task.objects.select_for_update().get(pk=case.instance)
        for write in writes(steps, case):
            assert not Thread(write).result(20)
    assert not Step.objects.exists()


def writes(steps, case):
    key = case.instance, case.attempt
    return (
        lambda: steps.begin(*key, "a"),
        lambda: steps.keep(*key, "a", RESULT),
        lambda: steps.begin(*key, "b", delay=timedelta(1)),
    )


class TestSleep:
    def test_it_begins_once(self, world, steps, host, case):
        """G17: a later attempt sleeps for what is left."""
        first = steps.begin(case.instance, case.attempt, "s", delay=timedelta(hours=1))
        assert 3590 < first.left <= 3600
        until = Step.objects.get().until
        second = steps.begin(case.instance, again(world, host, case), "s", delay=timedelta(hours=9))
        assert (second.is_done, second.left <= first.left) == (False, True)
        assert Step.objects.get().until == until
        assert repeated(case) == []

    def test_it_is_over(self, steps, case):
        steps.begin(case.instance, case.attempt, "s", delay=timedelta(hours=1))
        Step.objects.update(until=Step.objects.get().started)
        again = steps.begin(case.instance, case.attempt, "s", delay=timedelta(hours=1))
        assert (again.is_done, again.left) == (True, 0)

    def test_it_is_no_step(self, steps, case):
        """G13: the code has changed between two attempts."""
        steps.begin(case.instance, case.attempt, "s", delay=timedelta(hours=1))
        with pytest.raises(InvalidStep, match="slept"):
            steps.begin(case.instance, case.attempt, "s")
        steps.begin(case.instance, case.attempt, "a")
        with pytest.raises(InvalidStep, match="no sleep"):
            steps.begin(case.instance, case.attempt, "a", delay=timedelta(hours=1))

    @pytest.mark.parametrize("is_over", [False, True])
    def test_a_transaction_is_no_sleep(self, steps, case, is_over):
        """G17: it would be skipped, or committed twice."""
        steps.begin(case.instance, case.attempt, "s", delay=timedelta(hours=1))
        if is_over:
            Step.objects.update(until=Step.objects.get().started)
        with pytest.raises(InvalidStep, match="slept"):
            steps.find(case.instance, "s")


def test_there_are_no_more_than_allowed(steps, case, settings):
    """G13."""
    settings.ATP = {**settings.ATP, "MAX_STEPS": 2}
    key = case.instance, case.attempt
    steps.begin(*key, "a")
    steps.begin(*key, "b")
    steps.begin(*key, "a")
    with pytest.raises(TooLarge, match="2 steps"):
        steps.begin(*key, "c")
    with pytest.raises(TooLarge, match="2 steps"):
        steps.keep(*key, "c", RESULT)
    assert Step.objects.count() == 2


class TestRemoval:
    """G12: they go with their Instance."""

    def test_retention(self, world, steps, host, case):
        steps.begin(case.instance, case.attempt, "a")
        host.move(case, Event.FINISH)
        Type.objects.update(retention=timedelta(0))
        assert world.store.purge() == 1
        assert not Step.objects.exists()

    def test_by_an_operator(self, world, steps, host, case):
        steps.begin(case.instance, case.attempt, "a")
        host.move(case, Event.FINISH)
        assert world.store.purge(instances=[case.instance], who="somebody") == 1
        assert not Step.objects.exists()

    def test_with_the_end_of_which_nothing_is_kept(self, world, steps, host, case):
        steps.begin(case.instance, case.attempt, "a")
        host.move(case, Event.FINISH, kept=False, time=world.store.now())
        assert not Instance.objects.exists()
        assert not Step.objects.exists()
