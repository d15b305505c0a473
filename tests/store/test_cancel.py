"""The store contract: what holders are asked; cancelling, alone and in races."""

import logging
from functools import partial
from itertools import product

import pytest

from atp import messages
from atp.commands import CANCEL, PAUSE, RELEASE, RESUME, AttemptCommand, Cancelled
from atp.models import Kind
from atp.states import CLAIMED, TERMINAL, TRANSITIONS, Event, Reason, Row, State

from ..helpers import at_once
from ..nonsense import tells
from .world import IS_SQLITE, move_of


def test_what_waits_fails_at_once_and_what_has_ended_is_left_alone(world, host):
    ended = [world.bring_to(state, host).instance for state in TERMINAL]
    keys = world.enqueue(3)
    logs = [len(world.log(key)) for key in ended]
    done = world.store.control.cancel([*ended, *keys[:2], 2**40], who="ann, shell")
    assert done == Cancelled(failed=tuple(keys[:2]))
    assert [world.state(key) for key in keys] == [State.FAILED, State.FAILED, State.ACCEPTED]
    assert world.get(keys[0]).reason == Reason.CANCELLED
    last = world.log(keys[0])[-1]
    assert (last.event, last.who) == (Event.FAIL, "ann, shell")
    assert tells(last.message, messages.cancelled())
    assert [c.instance for c in host.claim()] == keys[2:]
    assert [len(world.log(key)) for key in ended] == logs


@pytest.mark.parametrize("event", [Event.RELEASE, Event.RETRY])
def test_the_move_back_honours_it(world, host, event):
    """In the same transaction, and both are logged (G6)."""
    case, other = (world.bring_to(State.RUNNING, host) for _ in range(2))
    world.store.control.cancel([case.instance], who="ann via shell")
    assert host.record(*[move_of(each, event, who="host:1") for each in (case, other)]) == []
    assert world.state(other.instance) == State.ACCEPTED
    assert world.state(case.instance) == State.FAILED
    assert world.get(case.instance).reason == Reason.CANCELLED
    assert world.task(case.instance) is None
    back, fail = world.log(case.instance)[-2:]
    assert (back.event, back.state) == (event, State.ACCEPTED)
    assert (fail.event, fail.who, fail.level) == (Event.FAIL, "host:1", logging.WARNING)
    assert tells(fail.message, messages.cancelled("ann via shell"))


@pytest.mark.django_db(transaction=True)
class TestRaces:
    """Exactly one wins, whichever came first, and the log says which (G6)."""

    @pytest.fixture
    def cancel(self, world):
        return partial(world.store.control.cancel, who="ann")

    def races(self, world, *events, **details):
        """Yield a daemon and its attempt after these events, a few times; check the queue."""
        for _ in range(5):
            host = world.host()
            case = world.bring_to(State.RUNNING, host)
            host.move(case, *events, **details)
            yield host, case
            world.check()

    def end_of(self, world, case):
        """Return the kinds of the records behind its start."""
        return [record.kind for record in world.log(case.instance)][3:]

    @pytest.mark.parametrize("event", [Event.FINISH, Event.EXPIRE])
    def test_an_end_or_a_loss(self, world, cancel, event):
        for host, case in self.races(world):
            change = move_of(case, event, time=world.store.now())
            refused, done = at_once(partial(host.record, change), partial(cancel, [case.instance]))
            assert refused == []
            instance, log = world.get(case.instance), self.end_of(world, case)
            asked = [Kind.ASK] * bool(done.asked)
            if event == Event.FINISH:
                assert (instance.state, log) == (State.FINISHED, [*asked, Event.FINISH])
                assert not done.failed
            else:
                assert (instance.reason, log) == (Reason.CANCELLED, [*asked, event, Event.FAIL])
                assert bool(done.asked) != bool(done.failed)

    def test_a_sweep(self, world, cancel):
        for host, case in self.races(world):
            host.lose_lease()
            at_once(world.store.daemons.sweep, partial(cancel, [case.instance]))
            if world.state(case.instance) != State.FAILED:
                # The sweep passed by what the cancel had locked, and comes again.
                assert not IS_SQLITE
                world.store.daemons.sweep()
            assert world.get(case.instance).reason == Reason.CANCELLED
            assert world.events(case.instance).count(Event.FAIL) == 1

    def test_a_claim(self, world, cancel):
        for host, case in self.races(world, Event.RELEASE):
            claimed, done = at_once(host.claim, partial(cancel, [case.instance]))
            assert bool(claimed) == bool(done.asked) != bool(done.failed)
            if claimed:
                host.move(claimed[0], Event.RELEASE)
            assert world.get(case.instance).reason == Reason.CANCELLED

    def test_another_cancel(self, world, cancel):
        """One of two operators is told that the other was quicker."""
        for _host, case in self.races(world):
            done = at_once(*[partial(cancel, [case.instance])] * 2)
            assert sorted((len(each.asked), len(each.before)) for each in done) == [(0, 1), (1, 0)]
            assert self.end_of(world, case) == [Kind.ASK]

    def test_a_redrive(self, world, cancel):
        for _host, case in self.races(world, Event.FAIL, reason=Reason.ERROR):
            redrive = partial(world.as_anyone, Event.REDRIVE, case.instance)
            refused, done = at_once(redrive, partial(cancel, [case.instance]))
            assert refused == []
            assert (world.state(case.instance) == State.FAILED) == bool(done.failed)
            cancel([case.instance])


# Every move that frees a Task, from every state that it may be asked to pause in.
FREEING = sorted(
    (row.event, source)
    for row in TRANSITIONS
    if row.row is Row.FREED
    for source in row.sources & {State.RUNNING, State.PAUSED}
)
# A daemon that leaves hands its Task back.
LEAVING = (None, State.PAUSED)


def test_the_holder_of_a_claimed_task_is_asked(world):
    host, other = world.host(), world.host()
    for state in CLAIMED:
        with world.case(state):
            case = world.bring_to(state, host)
            given = {"who": "ann", "message": "please"}
            assert world.store.control.request(case.instance, RELEASE, **given) is True
            asked = AttemptCommand(instance=case.instance, attempt=case.number, request=RELEASE)
            assert world.store.control.asked(host.uuid) == [asked]
            assert world.store.control.asked(other.uuid) == []
            last = world.log(case.instance)[-1]
            assert (last.who, last.message, last.state) == ("ann", "please", state)
            assert (last.kind, last.detail) == (Kind.ASK, RELEASE)
            world.store.control.request(case.instance, RELEASE, who="ann")
            told = messages.command_sent(RELEASE)
            assert tells(world.log(case.instance)[-1].message, told)
            assert world.store.control.cancel([case.instance], who="bob").asked == (case.instance,)
            assert world.state(case.instance) == state
            last = world.log(case.instance)[-1]
            assert (last.who, last.kind, last.detail) == ("bob", Kind.ASK, CANCEL)
            [asked] = world.store.control.asked(host.uuid)
            assert (asked.attempt, asked.request, asked.who) == (case.number, CANCEL, "bob")
            assert 0 <= asked.age < 30
            new = world.host(old=host.uuid, holding={(case.instance, case.number)})
            assert [each.request for each in world.store.control.asked(new.uuid)] == [CANCEL]


@pytest.mark.slow
def test_what_goes_back_is_asked_for_nothing_any_more(world):
    """The wish was about that attempt: the next one may be asked again."""
    for (event, state), wanted in product([*FREEING, LEAVING], (PAUSE, RESUME, RELEASE)):
        with world.case((event, state, wanted)):
            host = world.host()
            case = world.bring_to(State.RUNNING, host)
            assert world.store.control.request(case.instance, PAUSE, who="ann")
            if state == State.PAUSED:
                host.move(case, Event.PAUSE)
            if wanted != PAUSE:
                assert world.store.control.request(case.instance, wanted, who="ann")
            if event is None:
                world.store.daemons.leave(host.uuid)
            else:
                host.move(case, event)
            assert world.state(case.instance) == State.ACCEPTED
            assert world.task(case.instance).request == ""
