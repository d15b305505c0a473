"""The store contract: inputs that do not fit a daemon's handler are left to another daemon."""

import pytest

from atp.models import Daemon, Task, incompatible_detail
from atp.states import DEAD_LETTER, Event, Reason, State

from .broken import age
from .graphs import chain
from .world import DAY, HOUR, ONE, TWO, move_of, registration

MISFIT = {"message": "it does not fit", "detail": incompatible_detail("1a2b3c4d")}


@pytest.fixture
def host(world):
    """A daemon, the only one, which tells its signature."""
    found = world.host()
    signed(found, "1a2b3c4d")
    return found


def signed(host, signature, *types):
    """Have a daemon tell this signature of the Types that it serves."""
    types = types or host.types
    rows = Daemon.objects.filter(uuid=host.uuid)
    rows.update(types=list(types), signatures=dict.fromkeys(types, signature))


def run(host, event, *, start=True, **details):
    """Claim the only Task that is due, and record this end; returns the attempt."""
    [case] = host.claim()
    started = host.world.store.now() if start else None
    host.move(case, event, started=started, time=host.world.store.now(), **details)
    return case


def put_off(host, key, **details):
    """Let an attempt misfit, then be due again; returns for how long it was deferred, in seconds.

    All delays are whole multiples of 5 s, so what the statements take until it is measured, on
    a slow machine a second or two, is rounded off.
    """
    before = host.world.store.now()
    run(host, Event.DEFER, **MISFIT, **details)
    task = host.world.task(key)
    if task is None:
        return 0
    Task.objects.filter(pk=key).update(due_at=task.due_at - HOUR)
    return max(0, 5 * ((task.due_at - before).total_seconds() // 5))


def test_the_delays_double_and_nothing_is_spent(world, host):
    """G2: no attempt of a handler was made."""
    [key] = world.enqueue()
    assert [put_off(host, key) for _ in range(6)] == [5, 10, 20, 40, 60, 60]
    instance = world.get(key)
    assert (instance.retries, instance.restarts, instance.lost) == (0, 0, 0)
    assert {r.message for r in world.log(key) if r.event == Event.DEFER} == {MISFIT["message"]}


def test_as_long_as_a_daemon_lives_that_may_take_it_it_is_not_failed(world):
    """G2: however seldom that one gets it."""
    host, other, [key] = world.host(), world.host(TWO), world.enqueue()
    signed(host, "1a2b3c4d")
    signed(other, "bbbb1111", ONE)
    assert [put_off(host, key) for _ in range(8)] == [0, 5, 0, 10, 0, 15, 0, 15]
    age(key, time=HOUR)
    put_off(host, key)
    assert world.state(key) == State.ACCEPTED
    other.lose_lease()
    run(host, Event.DEFER, **MISFIT)
    assert world.state(key) == State.FAILED


def test_after_the_time_it_is_a_dead_letter(world, host):
    """Whoever only hands it back does not begin the time anew.

    G4: recorded again, because the acknowledgement got lost, it is refused and tells nothing.
    """
    [key] = world.enqueue(start_before=world.store.now() + DAY)
    put_off(host, key)
    run(host, Event.RELEASE, start=False)
    # Its handler was not entered, so it can still be too late for its start_before.
    assert world.task(key).start_before is not None
    age(key, time=HOUR)
    case = run(host, Event.DEFER, **MISFIT)
    instance, log = world.get(key), world.log(key)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.ERROR)
    assert instance.reason in DEAD_LETTER
    assert (log[-1].event, log[-1].detail) == (Event.FAIL, "atp.exceptions.InvalidInputs")
    assert log[-1].message != MISFIT["message"]
    again = move_of(case, Event.DEFER, time=world.store.now(), **MISFIT)
    assert host.record(again) == [again]
    assert len(world.log(key)) == len(log)


def test_a_handler_that_ran_meanwhile_begins_anew(world, host):
    """The time counts while no daemon takes it: one has."""
    [key] = world.enqueue(type=registration(max_retries=3))
    put_off(host, key)
    put_off(host, key)
    run(host, Event.RETRY)
    age(key, time=HOUR)
    assert put_off(host, key) <= 5
    assert world.state(key) == State.ACCEPTED


def test_a_node_of_a_graph_that_fails_so_takes_along_what_follows(world, host):
    """G17: it ends as any other does."""
    first, second = chain(world, "a", "b", types={"a": TWO, "b": ONE})
    put_off(host, first)
    assert world.state(second) == State.ACCEPTED
    age(first, time=HOUR)
    run(host, Event.DEFER, **MISFIT)
    assert world.state(first) == State.FAILED
    assert world.get(second).reason == Reason.UPSTREAM
