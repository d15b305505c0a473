"""What an Instance has of its own, ``timeout`` and ``max_retries``, whatever way it is claimed."""

from datetime import timedelta

import pytest

from atp.payload import own
from atp.payload.codec import Payload
from atp.states import Event, State
from atp.store import get_store
from atp.store.values import Submission

from .handings import heard
from .world import ONE, TWO, registration, scope

OWN = own.of(timeout=timedelta(seconds=1.5), max_retries=7)


def given(claimed):
    return claimed.timeout, claimed.max_retries


@pytest.mark.parametrize("limit", [1, 10])
def test_a_claim_brings_it(world, limit):
    """Of one as of many; what has nothing of its own has what its Type says."""
    of = registration(timeout=timedelta(seconds=9), max_retries=4)
    [first] = world.enqueue(type=of, own=OWN)
    [second] = world.enqueue(type=of)
    host = world.host()
    found = {each.instance: given(each) for _ in range(2) for each in host.claim(limit)}
    assert found == {
        first: (timedelta(seconds=1.5), 7),
        second: (timedelta(seconds=9), 4),
    }


def test_a_claim_of_what_is_limited_brings_it(world):
    world.enqueue(own=OWN)
    world.store.limit(scope(ONE), max_running=5)
    [claimed] = world.host().claim()
    assert given(claimed) == (timedelta(seconds=1.5), 7)


def test_many_have_each_its_own(world):
    wanted = [OWN, None, own.of(max_retries=0)]
    submissions = [Submission(Payload("json", "{}"), own=each) for each in wanted]
    made = world.store.enqueue(registration(max_retries=2), submissions)
    assert [instance.max_retries for instance in made] == [7, None, 0]
    found = {each.instance: each.max_retries for each in world.host().claim()}
    assert [found[instance.pk] for instance in made] == [7, 2, 0]


def test_the_instance_has_it_as_soon_as_it_is_enqueued(world):
    submission = Submission(Payload("json", "{}"), own=OWN)
    [made] = world.store.enqueue(registration(), [submission])
    for instance in (made, world.get(made.pk)):
        assert (instance.timeout, instance.max_retries) == (timedelta(seconds=1.5), 7)


def test_one_without_it_has_null(world):
    """It takes no room."""
    [key] = world.enqueue()
    assert world.get(key).own is None


def test_a_redrive_keeps_it(world):
    host = world.host()
    case = world.bring_to(State.FAILED, host, own=OWN)
    world.as_anyone(Event.REDRIVE, case.instance)
    [again] = host.claim()
    assert given(again) == (timedelta(seconds=1.5), 7)


class TestHanding:
    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture
    def world(self, handing_world):
        return handing_world

    def test_whom_it_is_handed_to_is_told(self, world, listening):
        _, ear = listening()
        world.enqueue(own=OWN)
        [(_, claimed)] = heard(ear)
        assert given(claimed) == (timedelta(seconds=1.5), 7)

    def test_it_counts_to_what_can_be_told(self, world, listening):
        """G1: a notice of PostgreSQL has 8,000 bytes; what is longer is claimed as ever."""
        host, _ = listening()
        [key] = world.enqueue(own=own.of(carried={"text": "ü" * 3000}))
        if get_store().vendor.__name__.split(".")[-2] == "postgresql":
            assert world.state(key) == State.ACCEPTED
            assert [each.instance for each in host.claim()] == [key]
        else:
            assert world.state(key) == State.SCHEDULED


def test_types_beside_it_are_not_concerned(world):
    world.enqueue(own=OWN)
    world.enqueue(type=TWO)
    found = {each.type: each.own is None for each in world.host().claim()}
    assert found == {ONE: False, TWO: True}
