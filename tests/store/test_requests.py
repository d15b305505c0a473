"""The store contract: request and asked."""

import pytest

from atp.rows.log import Kind
from atp.states import CLAIMED, TRANSITIONS, Event, Row, State
from atp.store.values import PAUSE, RELEASE, RESUME, Ask
from atp.words import attempt_messages

from ..nonsense import tells

# Every move that frees a Task, from every state that it may be asked to pause in.
FREEING = sorted(
    (row.event, source)
    for row in TRANSITIONS
    if row.row is Row.FREED
    for source in row.sources & {State.RUNNING, State.PAUSED}
)


@pytest.mark.parametrize("state", sorted(CLAIMED))
def test_the_holder_of_a_claimed_task_is_asked(world, state):
    host, other = world.host(), world.host()
    case = world.bring_to(state, host)
    assert world.store.request(case.instance, RELEASE, who="ann", message="please") is True
    asked = Ask(instance=case.instance, attempt=case.attempt, request=RELEASE)
    assert world.store.asked(host.uuid) == [asked]
    assert world.store.asked(other.uuid) == []
    last = world.log(case.instance)[-1]
    assert (last.who, last.message, last.state) == ("ann", "please", state)
    assert (last.kind, last.detail) == (Kind.ASK, RELEASE)
    assert world.state(case.instance) == state


def test_without_a_message_the_log_says_what_was_asked(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.request(case.instance, RELEASE, who="ann")
    assert tells(world.log(case.instance)[-1].message, attempt_messages.asked(RELEASE))


@pytest.mark.parametrize("state", sorted(set(State) - CLAIMED))
def test_what_is_not_claimed_has_nobody_to_ask(world, state):
    case = world.bring_to(state, world.host())
    before = world.snapshot()
    assert world.store.request(case.instance, RELEASE, who="ann") is False
    assert world.snapshot() == before


def test_an_unknown_instance_has_nobody_to_ask(world):
    assert world.store.request(2**40, RELEASE, who="ann") is False


@pytest.mark.parametrize("event", [Event.RELEASE, Event.EXPIRE, Event.RETRY])
def test_the_move_back_honours_the_request(world, event):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.request(case.instance, RELEASE, who="ann")
    host.move(case, event)
    assert world.task(case.instance).request == ""
    host.claim()
    assert world.store.asked(host.uuid) == []


@pytest.mark.parametrize(("event", "state"), FREEING)
@pytest.mark.parametrize("request_", [PAUSE, RESUME])
def test_what_goes_back_is_not_asked_to_pause_any_more(world, event, state, request_):
    """The wish was about that attempt: the next one may be asked again."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    assert world.store.request(case.instance, PAUSE, who="ann")
    if state == State.PAUSED:
        host.move(case, Event.PAUSE)
    if request_ == RESUME:
        assert world.store.request(case.instance, RESUME, who="ann")
    host.move(case, event)
    assert world.state(case.instance) == State.ACCEPTED
    assert world.task(case.instance).request == ""


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED])
def test_what_a_daemon_leaves_behind_is_not_asked_to_pause_any_more(world, state):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    assert world.store.request(case.instance, PAUSE, who="ann")
    if state == State.PAUSED:
        host.move(case, Event.PAUSE)
    world.store.leave(host.uuid)
    assert (world.state(case.instance), world.task(case.instance).request) == (State.ACCEPTED, "")


def test_a_request_moves_with_its_task_to_a_new_identity(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.request(case.instance, RELEASE, who="ann")
    new = type(host)(world)
    world.hosts.append(new)
    new.join(old=host.uuid, holding={(case.instance, case.attempt)})
    assert [asked.instance for asked in world.store.asked(new.uuid)] == [case.instance]
