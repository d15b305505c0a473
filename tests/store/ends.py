"""Each way in which an Instance can end, by what it is called."""

from atp.models import Task
from atp.states import Event, Reason

from .broken import age
from .world import ONE, SECOND, finish_of, move_of, registration, scope

# For a Type that says nothing of its restarts.
TOO_OFTEN = registration().max_restarts + 1


def finish(host, *cases, **more):
    """Record that attempts started and finished, as a daemon does."""
    assert host.record(*[finish_of(host.world, case, **more) for case in cases]) == []


def running(host):
    """Let a daemon claim the one Task there is, and start it."""
    [case] = host.claim()
    host.move(case, Event.START)
    return case


def by_record(world, key, host):
    finish(host, *host.claim())


def by_record_in_parts(world, key, host):
    host.move(running(host), Event.FINISH, message="with a message")


def by_failing(world, key, host):
    host.move(running(host), Event.FAIL, reason=Reason.ERROR)


def by_conclusion(world, key, host):
    world.store.records.conclude(move_of(running(host), Event.FINISH))


def unkept(world, key, host):
    finish(host, *host.claim(), kept=False)


def by_cancel(world, key, host):
    world.store.control.cancel([key])


def by_cancel_when_held(world, key, host):
    case = running(host)
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
    for _ in range(TOO_OFTEN):
        lost = world.host(name="lost")
        running(lost)
        lost.lose_lease()
        world.store.daemons.sweep()


def by_scan(world, key, host):
    """A scan finds that nobody holds it."""
    for _ in range(TOO_OFTEN):
        running(host)
        Task.objects.filter(pk=key).update(daemon=None)
        age(key)
        world.store.upkeep.scan()


FINISHING = [by_record, by_record_in_parts, by_conclusion, unkept]
FAILING = [
    *(by_failing, by_cancel, by_cancel_when_held, by_drop, by_miss, by_claim_that_is_late),
    *(by_sweep, by_scan),
]
