"""The checkpoints of handlers in the store: fence, repetition, limits (G4, G13, G17)."""

import pytest
from django.db import transaction

from atp.exceptions import InvalidStep, TaskGone, TooLarge
from atp.models import Instance, Kind, Step, Task
from atp.payload import codec
from atp.states import Event

from ..helpers import Thread
from .world import DAY, HOUR, needs_row_locks

RESULT = codec.Payload(codec.JSON, "5")


@pytest.fixture
def steps(world):
    return world.store.steps


def again(world, host, case):
    """Claim it once more, and return the number of that attempt."""
    host.move(case, Event.RELEASE)
    [claimed] = host.claim()
    assert claimed.instance == case.instance
    return claimed.number


def repeated(case):
    records = Instance.objects.get(pk=case.instance).log.filter(kind=Kind.STEP)
    return list(records.values_list("attempt", "detail"))


def test_it_is_begun_and_kept_or_its_repetition_is_logged_once_for_each_attempt(
    world, steps, host, case
):
    """G17: what was kept is not repeated."""
    key = case.instance, case.number
    assert steps.find(case.instance, "a") is None
    assert not steps.begin(*key, "a").is_done
    assert not steps.find(case.instance, "a").is_done
    assert steps.keep(*key, "a", RESULT)
    steps.begin(*key, "b")
    found = steps.find(case.instance, "a")
    assert (found.is_done, found.value) == (True, 5)
    second = case.instance, again(world, host, case)
    assert steps.begin(*second, "a").value == 5
    assert repeated(case) == []
    for _ in range(2):
        steps.begin(*second, "b", who="somebody")
        assert repeated(case) == [(2, "b")]
    assert Step.objects.get(name="b").attempt == 2


@pytest.mark.parametrize("event", [Event.RELEASE, Event.FINISH, "claim"])
def test_only_the_attempt_that_holds_the_task_writes(world, steps, host, case, event):
    """G4."""
    with transaction.atomic():
        assert steps.hold(case.instance, case.number)
    if event == "claim":
        again(world, host, case)
    else:
        host.move(case, event)
    for write in (*writes(steps, case), lambda: steps.hold(case.instance, case.number)):
        with pytest.raises(TaskGone), transaction.atomic():
            write()
    assert not Step.objects.exists()


@pytest.mark.django_db(transaction=True)
@needs_row_locks
def test_a_task_that_is_locked_is_not_waited_for(world, steps, case):
    """G9."""
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=case.instance)
        for write in writes(steps, case):
            assert not Thread(write).result(20)
    assert not Step.objects.exists()


def writes(steps, case):
    key = case.instance, case.number
    return (
        lambda: steps.begin(*key, "a"),
        lambda: steps.keep(*key, "a", RESULT),
        lambda: steps.begin(*key, "b", delay=DAY),
    )


def test_a_sleep_begins_once(world, steps, host, case):
    """G17: a later attempt sleeps for what is left."""
    first = steps.begin(case.instance, case.number, "s", delay=HOUR)
    assert 3590 < first.left <= 3600
    until = Step.objects.get().until
    second = steps.begin(case.instance, again(world, host, case), "s", delay=9 * HOUR)
    assert (second.is_done, second.left <= first.left) == (False, True)
    assert Step.objects.get().until == until
    assert repeated(case) == []


def test_a_sleep_is_no_step_and_no_transaction(steps, case):
    """G13, G17: the code has changed between two attempts; it would be skipped."""
    key = case.instance, case.number
    steps.begin(*key, "s", delay=HOUR)
    with pytest.raises(InvalidStep, match="slept"):
        steps.begin(*key, "s")
    steps.begin(*key, "a")
    with pytest.raises(InvalidStep, match="no sleep"):
        steps.begin(*key, "a", delay=HOUR)
    Step.objects.filter(name="s").update(until=Step.objects.get(name="s").started)
    with pytest.raises(InvalidStep, match="slept"):
        steps.find(case.instance, "s")


def test_there_are_no_more_than_allowed(steps, case, settings):
    """G13."""
    settings.ATP = {**settings.ATP, "MAX_STEPS": 2}
    key = case.instance, case.number
    steps.begin(*key, "a")
    steps.begin(*key, "b")
    steps.begin(*key, "a")
    with pytest.raises(TooLarge, match="2 steps"):
        steps.begin(*key, "c")
    with pytest.raises(TooLarge, match="2 steps"):
        steps.keep(*key, "c", RESULT)
    assert Step.objects.count() == 2


def test_they_go_with_the_end_of_which_nothing_is_kept(world, steps, host, case):
    """G12."""
    steps.begin(case.instance, case.number, "a")
    host.move(case, Event.FINISH, kept=False, time=world.store.now())
    assert not Instance.objects.exists()
    assert not Step.objects.exists()
