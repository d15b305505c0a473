"""The fence: what an attempt writes after its Task was taken away (G4)."""

import pytest

from atp.states import CLAIMED, Event, Reason, State
from atp.store.values import Change, Message, Note, ResponseData

HELD = sorted(CLAIMED)
FILE = {"name": "a", "path": "atp/a", "content_type": "x/y", "size": 1, "attempt": 1}


def late_writes(world, case):
    """Everything that the holder of an attempt can say, as (verb, value) pairs."""
    answer = ResponseData(content_type="text/plain", data=b"late", size=4)
    for event in Event:
        yield (
            world.store.record,
            Change(
                event=event,
                instance=case.instance,
                attempt=case.attempt,
                reason=Reason.ERROR if event == Event.FAIL else "",
                response=answer if event == Event.FINISH else None,
            ),
        )
    own = {"instance": case.instance, "attempt": case.attempt}
    said = (Message(time=world.store.now(), level=20, text="late"),)
    yield world.store.note, Note(**own, progress=0.9, progress_message="late")
    yield world.store.note, Note(**own, messages=said)
    yield world.store.note, Note(**own, files=(FILE,))


def nothing_gets_through(world, case, host):
    before = world.snapshot()
    for verb, value in late_writes(world, case):
        assert verb([value], daemon=host.uuid) == [value]
        assert world.snapshot() == before, value


@pytest.mark.parametrize("state", HELD)
def test_after_a_sweep(world, state):
    """G4: its lease was over and the Task waits again."""
    host = world.host()
    case = world.bring_to(state, host)
    host.lose_lease()
    assert world.store.sweep().expired == 1
    nothing_gets_through(world, case, host)


@pytest.mark.parametrize("state", HELD)
def test_after_a_sweep_and_a_claim_by_another(world, state):
    """G4: the late writer neither hurts nor ends the attempt of another daemon."""
    host, other = world.host(), world.host()
    case = world.bring_to(state, host)
    host.lose_lease()
    world.store.sweep(daemon=other.uuid)
    [again] = other.claim()
    assert again.instance == case.instance
    nothing_gets_through(world, case, host)
    other.move(again, Event.START)
    nothing_gets_through(world, case, host)
    other.move(again, Event.FINISH)
    nothing_gets_through(world, case, host)


@pytest.mark.parametrize("state", HELD)
def test_after_the_same_daemon_has_claimed_it_again(world, state):
    """G4: the attempt number is the fence, not only the daemon."""
    host = world.host()
    case = world.bring_to(state, host)
    host.move(case, Event.EXPIRE)
    nothing_gets_through(world, case, host)
    [again] = host.claim()
    assert again.attempt == case.attempt + 1
    nothing_gets_through(world, case, host)
    host.move(again, Event.START)
    nothing_gets_through(world, case, host)


@pytest.mark.parametrize("state", HELD)
def test_after_its_identity_has_ended(world, state):
    """G4: a new dispatcher took over, and has not been told of this attempt."""
    host, new = world.host(), world.host()
    case = world.bring_to(state, host)
    newer = type(host)(world)
    world.hosts.append(newer)
    assert newer.join(old=host.uuid, holding=()).expired == 1
    nothing_gets_through(world, case, host)
    [again] = new.claim()
    nothing_gets_through(world, case, host)
    assert again.attempt == 2


def test_after_the_instance_has_finished(world):
    """G4: a repeated delivery of a result changes nothing."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    host.move(case, Event.FINISH)
    nothing_gets_through(world, case, host)


def test_after_it_was_removed(world):
    """G4."""
    host = world.host()
    case = world.bring_to(State.FINISHED, host)
    assert world.store.purge(instances=[case.instance]) == 1
    nothing_gets_through(world, case, host)


def test_a_number_from_the_future_is_refused_too(world):
    """G4: the fence is equality, nothing about order or time."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    nothing_gets_through(world, type(case)(case.instance, case.attempt + 1), host)
    nothing_gets_through(world, type(case)(case.instance, None), host)


def test_a_lease_that_has_run_out_does_not_refuse_who_still_holds(world):
    """Time passing only entitles a sweep to take the Task away."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    host.lose_lease()
    host.move(case, Event.FINISH)
    assert world.store.sweep().expired == 0
    assert world.state(case.instance) == State.FINISHED
