"""Each way in which an Instance can end, by what it is called."""

from atp.models import Task
from atp.states import Event, Reason

from .broken import age
from .world import ONE, SECOND, finish_of, move_of, scope


def finish(host, case, **more):
    """Record that an attempt started and finished, as a daemon does."""
    assert host.record(finish_of(host.world, case, **more)) == []


def by_record(world, key, host):
    [case] = host.claim()
    finish(host, case)


def by_record_in_parts(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FINISH, message="with a message")


def by_failing(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR)


def by_conclusion(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    world.store.records.conclude(move_of(case, Event.FINISH))


def unkept(world, key, host):
    [case] = host.claim()
    finish(host, case, kept=False)


def by_cancel(world, key, host):
    world.store.control.cancel([key])


def by_cancel_when_held(world, key, host):
    [case] = host.claim()
    host.move(case, Event.START)
    world.store.control.cancel([key])
    host.move(case, Event.RELEASE)


def by_drop(world, key, host):
    world.store.control.shut(scope(ONE), "drop")
    assert world.store.gates.drop() == 1
    world.store.control.open(scope(ONE))


def make_late(world, key):
    Task.objects.filter(pk=key).update(start_before=world.store.now() - SECOND)


def by_miss(world, key, host):
    make_late(world, key)
    assert world.store.claims.miss() == 1


def by_claim_that_is_late(world, key, host):
    make_late(world, key)
    assert host.claim() == []


def by_sweep(world, key, host):
    for _ in range(5):
        lost = world.host(name="lost")
        cases = lost.claim()
        if not cases:
            break
        lost.move(cases[0], Event.START)
        lost.lose_lease()
        world.store.daemons.sweep()


def by_scan(world, key, host):
    """A scan finds that nobody holds it, once too often."""
    for _ in range(5):
        cases = host.claim()
        if not cases:
            break
        host.move(cases[0], Event.START)
        Task.objects.filter(pk=key).update(daemon=None)
        age(key)
        world.store.upkeep.scan()


FINISHING = [by_record, by_record_in_parts, by_conclusion, unkept]
FAILING = [
    *(by_failing, by_cancel, by_cancel_when_held, by_drop, by_miss, by_claim_that_is_late),
    *(by_sweep, by_scan),
]
