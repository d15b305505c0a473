"""An enqueue hands its Task to a daemon that is idle (G15)."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp.admin.rows import DaemonAdmin
from atp.api.serializers import DaemonSerializer
from atp.exceptions import DuplicateIdentifier
from atp.models import Instance, Task
from atp.payload.codec import Payload
from atp.states import Event, State
from atp.store import handover
from atp.store.values import Submission
from atp.words.orders import Order

from ..helpers import DEADLINE, Thread, remove_by_hand, wait_for
from .handings import heard, is_waiting, say
from .world import LEASE, ONE, SECOND, TWO, registration, scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(handing_world):
    return handing_world


def test_it_is_held_by_the_daemon_that_is_told(world, listening):
    """G1, G6: one commit, after which it is as if the daemon had claimed it."""
    host, ear = listening()
    [key] = world.enqueue(collection="a", priority=7, created_by="somebody")
    instance, task = world.get(key), world.task(key)
    assert (instance.state, instance.attempt) == (State.SCHEDULED, 1)
    assert (task.daemon, task.attempt) == (host.row, 1)
    log = [(r.event, r.state, r.attempt, r.who, r.time) for r in world.log(key)]
    assert log == [
        ("enqueue", "ACCEPTED", 0, "somebody", instance.created),
        ("claim", "SCHEDULED", 1, str(host.row), instance.created),
    ]
    [(daemon, claimed)] = heard(ear)
    assert daemon == host.uuid
    host.move(claimed, Event.START, Event.FINISH)
    assert world.state(key) == State.FINISHED


def test_it_is_told_what_a_claim_is_told(world, listening):
    host, ear = listening()
    data = Payload("json", '{"a":"b\\\\n"}')
    handed = Submission(data, identifier="named", collection="a", priority=3)
    world.store.enqueue(registration(), [handed])
    [(_, told)] = heard(ear)
    host.move(told, Event.RELEASE)
    Instance.objects.update(attempt=0)
    Task.objects.update(attempt=0)
    [claimed] = host.claim()
    Instance.objects.update(attempt=0)
    given = {"time": None, "waited": 0.0}
    assert told._replace(**given) == claimed._replace(**given)
    world.as_anyone(Event.FAIL, told.instance, reason="CANCELLED")
    remove_by_hand(Instance.objects.all())


def test_an_identifier_that_is_taken_takes_no_daemon(world, listening):
    """G13: it is refused, and the daemon is as idle as before."""
    host, ear = listening()
    world.enqueue(identifier="a")
    [(_, first)] = heard(ear)
    host.move(first, Event.RELEASE)
    say(world, host, ear)
    world.enqueue(identifier="a", existing="return", collection="b")
    with pytest.raises(DuplicateIdentifier):
        world.enqueue(identifier="a", collection="b")
    assert host.row.idle
    assert Instance.objects.count() == 1
    [other] = world.enqueue(identifier="b", collection="b")
    assert [claimed.instance for _, claimed in heard(ear)] == [other]


def test_what_the_caller_gets_is_accepted(world, listening):
    listening()
    [instance] = world.store.enqueue(registration(), [Submission(Payload("json", "{}"))])
    assert (instance.state, instance.attempt, instance.is_new) == (State.ACCEPTED, 0, True)


def test_a_daemon_is_handed_one_until_it_says_again_that_it_is_idle(world, listening):
    host, ear = listening()
    [first], [second] = world.enqueue(), world.enqueue()
    assert world.state(first) == State.SCHEDULED
    assert is_waiting(world, second)
    assert not host.row.idle
    assert [claimed.instance for _, claimed in heard(ear)] == [first]
    host.claim()
    say(world, host, ear)
    [third] = world.enqueue()
    assert world.state(third) == State.SCHEDULED
    assert [claimed.instance for _, claimed in heard(ear)] == [third]


def test_of_two_each_is_handed_one(world, listening):
    (one, _), (two, _) = listening(), listening()
    [first], [second] = world.enqueue(), world.enqueue()
    assert {world.task(key).daemon.uuid for key in (first, second)} == {one.uuid, two.uuid}


def test_an_ordinary_notice_goes_to_those_that_are_left(world, listening):
    """What cannot be handed over is told to whoever is idle."""
    _, ear = listening()
    world.store.renew(world.host().uuid, lease=LEASE, idle=True)
    [first], [second] = world.enqueue(), world.enqueue()
    assert is_waiting(world, second)
    assert ear.wait(DEADLINE)
    assert [claimed.instance for _, claimed in heard(ear)] == [first]


def busy(world, host, ear):
    say(world, host, ear, idle=False)


def deaf(world, host, ear):
    say(world, host, ear, channel="")


def gone(world, host, ear):
    if connection.vendor != "postgresql":
        ear.close()
        return
    backend = ear._wrapper.connection.info.backend_pid
    ear.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])


def over(world, host, ear):
    host.lose_lease()


def quiet(world, host, ear):
    say(world, host, ear, mode="quiet")


def asked_to_stop(world, host, ear):
    world.store.command(host.uuid, Order.STOP)


def gate_of_everything(world, host, ear):
    world.store.shut(scope(), "hold")


def gate_of_the_type(world, host, ear):
    world.store.shut(scope(ONE), "hold")


def gate_of_another_lane(world, host, ear):
    world.store.shut(scope(ONE, "other"), "hold")


def limit(world, host, ear):
    world.store.limit(scope(ONE), max_running=1)


def limit_of_each_lane(world, host, ear):
    world.store.limit(scope(ONE), max_running_per_collection=1)


def something_in_the_lane(world, host, ear):
    say(world, host, ear, idle=False)
    world.enqueue()
    say(world, host, ear)


def something_dated_in_the_lane(world, host, ear):
    world.enqueue(due=world.store.now() + timedelta(hours=1))


@pytest.mark.parametrize(
    "prepare",
    [
        *(busy, deaf, gone, over, quiet, asked_to_stop),
        *(gate_of_everything, gate_of_the_type, gate_of_another_lane),
        *(limit, limit_of_each_lane),
        *(something_in_the_lane, something_dated_in_the_lane),
    ],
)
def test_when_it_is_not_handed_over(world, listening, prepare):
    """G8, G10: where the daemon would not claim it, or not first, or would not hear of it."""
    prepare(world, *listening())
    [key] = world.enqueue()
    assert is_waiting(world, key)


def test_another_type_is_not_handed_over(world, listening):
    listening(TWO)
    [key] = world.enqueue()
    assert is_waiting(world, key)


@pytest.mark.parametrize("option", ["due", "start_before"])
def test_what_is_more_than_simple_is_not_handed_over(world, listening, option):
    listening()
    now = world.store.now()
    value = {"due": now, "start_before": now + SECOND * 60}[option]
    [key] = world.enqueue(**{option: value})
    assert is_waiting(world, key)


def test_what_waits_in_another_lane_is_no_hindrance(world, listening):
    listening()
    world.enqueue(collection="a", due=world.store.now() + SECOND * 3600)
    [key] = world.enqueue(collection="b")
    assert world.state(key) == State.SCHEDULED


def test_many_in_a_row_are_not_looked_after_one_by_one(world, listening, monkeypatch):
    monkeypatch.setattr(handover, "APART", 1000.0)
    listening()
    world.store._last = 0.0
    keys = [key for _ in range(3) for key in world.enqueue()]
    assert all(is_waiting(world, key) for key in keys[1:])


def test_in_a_transaction_of_the_caller_nothing_is_handed_over(world, listening):
    """G7: it may be rolled back, and nobody's row stays locked meanwhile."""
    host, ear = listening()
    with transaction.atomic():
        [key] = world.enqueue()
        if connection.vendor == "postgresql":  # where nobody has to wait for the transaction
            Thread(say, world, host, ear).result()
    assert is_waiting(world, key)
    assert heard(ear) == []


def test_what_a_lost_daemon_was_handed_is_done_by_another(world, listening):
    """G1, G2."""
    host, _ = listening()
    [key] = world.enqueue()
    host.lose_lease()
    other = world.host()
    assert world.store.sweep(daemon=other.uuid).expired == 1
    [claimed] = other.claim()
    assert (claimed.instance, claimed.attempt, claimed.restarts) == (key, 2, 0)


def test_a_new_identity_gives_back_what_it_has_not_heard_of(world, listening):
    """G1: and then claims it."""
    host, _ = listening()
    [key] = world.enqueue()
    again = world.host(old=host.uuid, holding=())
    assert host.row is None
    assert world.state(key) == State.ACCEPTED
    assert [claimed.instance for claimed in again.claim()] == [key]


def test_a_daemon_that_leaves_hands_it_back(world, listening):
    """G10."""
    host, _ = listening()
    [key] = world.enqueue()
    world.store.leave(host.uuid)
    assert world.state(key) == State.ACCEPTED
    assert world.events(key) == ["enqueue", "claim", "release"]


def test_a_race_with_the_end_of_the_daemon(world, listening):
    """G1: whoever comes first, it waits in the end or is held by a row that is there."""
    for _ in range(20):
        host, ear = listening()
        leaving = Thread(world.store.leave, host.uuid)
        [key] = world.enqueue()
        leaving.result()
        assert world.state(key) == State.ACCEPTED
        assert wait_for(lambda key=key: world.task(key).daemon_id is None)
        ear.close()


def test_others_cannot_listen_in(world, listening):
    """G14: a name that nobody can guess, and that neither API nor admin shows."""
    (_, first), (_, second) = listening(), listening()
    assert first.channel != second.channel
    assert len(first.channel.rpartition("_")[2]) == 32
    assert "channel" not in DaemonSerializer().fields
    assert "channel" not in DaemonAdmin.fields


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="of PostgreSQL")
def test_the_first_of_a_connection_is_not_handed(world, listening):
    """To plan the statement that hands takes a new session longer than a claim."""
    listening()
    connection.close()
    [key] = world.enqueue()
    assert world.state(key) == State.ACCEPTED
    # What waits now would come first.
    remove_by_hand(Instance.objects.all())
    [key] = world.enqueue()
    assert world.state(key) == State.SCHEDULED
    remove_by_hand(Instance.objects.all())
