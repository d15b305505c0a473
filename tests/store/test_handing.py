"""An enqueue hands its Task to a daemon that is idle (G15)."""

import contextlib
import errno
import json
import os
from pathlib import Path
from unittest import mock

import pytest
from django.db import connection, transaction

from atp import options
from atp.admin.tables import DaemonAdmin
from atp.api.serializers import DaemonSerializer
from atp.commands import DaemonCommand
from atp.exceptions import DuplicateIdentifier
from atp.models import Daemon, Inputs, Instance
from atp.payload.codec import Payload
from atp.states import Event, State
from atp.store.values import Attempt, Submission

from ..helpers import Thread, remove_by_hand, wait_for
from .broken import execute
from .world import (
    HOUR,
    IS_SQLITE,
    LEASE,
    ONE,
    SECOND,
    TWO,
    Case,
    only_postgresql,
    only_sqlite,
    registration,
    scope,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(handing_world):
    return handing_world


def say(world, host, ear, **said):
    """Let the daemon renew its lease, and say that it is idle unless something else is given."""
    said = {"idle": True, "channel": ear.channel} | said
    world.store.daemons.renew(host.uuid, lease=LEASE, **said)


def heard(ear):
    """What has been handed over by now, each with the daemon that it is for."""
    if not IS_SQLITE:
        with ear._wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")  # what was committed before is here with the answer
    ear.wait(0)
    return ear.handed()


def heard_keys(ear):
    return [claimed.instance for _, claimed in heard(ear)]


def is_waiting(world, key):
    """Whether it was enqueued, and nothing else; that it waits then, each world checks."""
    return world.events(key) == ["enqueue"]


@pytest.fixture
def listening(world):
    """Make a daemon that listens and has said that it is idle, with its listener."""
    with contextlib.ExitStack() as stack:

        def listen(*types, **said):
            host = world.host(*types)
            ear = stack.enter_context(contextlib.closing(world.store.listener()))
            assert ear.wait(0)
            say(world, host, ear, **said)
            return host, ear

        yield listen


def test_it_is_held_by_the_daemon_that_is_told(world, listening):
    """G1, G6: one commit, after which it is as if the daemon had claimed it."""
    host, ear = listening()
    data = Payload("json", '{"a":"b\\\\n"}')
    own = options.own_options(timeout=SECOND * 1.5, max_retries=7)
    given = {"identifier": "named", "collection": "a", "priority": 3, "own": own}
    handed = Submission(data, created_by="somebody", **given)
    [made] = world.store.enqueueing.enqueue(registration(), [handed])
    instance, task = world.get(made.pk), world.task(made.pk)
    assert (instance.state, instance.attempt) == (State.SCHEDULED, 1)
    assert (task.daemon, task.attempt) == (host.row, 1)
    log = [(r.event, r.state, r.attempt, r.who, r.time) for r in world.log(made.pk)]
    assert log == [
        ("enqueue", "ACCEPTED", 0, "somebody", instance.created),
        ("claim", "SCHEDULED", 1, str(host.row), instance.created),
    ]
    [(daemon, told)] = heard(ear)
    assert daemon == host.uuid
    assert (told.timeout, told.max_retries) == (SECOND * 1.5, 7)
    host.move(told, Event.RELEASE)
    [claimed] = host.claim()
    for name in set(Attempt.CLAIMED) - {"time", "waited", "number", "own"}:
        assert getattr(told, name) == getattr(claimed, name), name
    assert json.loads(told.own) == json.loads(claimed.own)
    host.move(claimed, Event.START, Event.FINISH)


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
    assert world.enqueue(identifier="b", collection="b") == heard_keys(ear)


def test_a_daemon_is_handed_one_until_it_says_again_that_it_is_idle(world, listening):
    host, ear = listening()
    [first], [second] = world.enqueue(), world.enqueue()
    assert world.state(first) == State.SCHEDULED
    assert is_waiting(world, second)
    assert not host.row.idle
    assert heard_keys(ear) == [first]
    host.claim()
    say(world, host, ear)
    [third] = world.enqueue()
    assert world.state(third) == State.SCHEDULED
    assert heard_keys(ear) == [third]


def gone(world, host, ear):
    backend = None if IS_SQLITE else ear._wrapper.connection.info.backend_pid
    ear.close()
    if backend is not None:
        execute("SELECT pg_terminate_backend(%s, 10000)", backend)


def something_in_the_lane(world, host, ear):
    say(world, host, ear, idle=False)
    world.enqueue()
    say(world, host, ear)


HINDRANCES = {
    "busy": lambda world, host, ear: say(world, host, ear, idle=False),
    "deaf": lambda world, host, ear: say(world, host, ear, channel=""),
    "gone": gone,
    "its lease is over": lambda world, host, ear: host.lose_lease(),
    "quiet": lambda world, host, ear: say(world, host, ear, mode="quiet"),
    "asked to stop": lambda world, host, ear: world.store.daemons.command(
        host.uuid, DaemonCommand.STOP
    ),
    "gate": lambda world, host, ear: world.store.control.shut(scope(ONE), "hold"),
    "limit": lambda world, host, ear: world.store.control.limit(scope(ONE), max_running=1),
    "limit of each lane": lambda world, host, ear: world.store.control.limit(
        scope(ONE), max_running_per_collection=1
    ),
    "something in the lane": something_in_the_lane,
    "something dated in the lane": lambda world, host, ear: world.enqueue(
        due=world.store.now() + HOUR
    ),
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_when_it_is_not_handed_over(world, listening, hindrance):
    """G8, G10: where the daemon would not claim it, or not first, or would not hear of it."""
    HINDRANCES[hindrance](world, *listening())
    [key] = world.enqueue()
    assert is_waiting(world, key)


def test_what_is_more_than_simple_or_of_another_type_is_not_handed_over(world, listening):
    """What waits in another lane is no hindrance."""
    listening(TWO)
    now = world.store.now()
    for more in ({"due": now}, {"start_before": now + SECOND * 60}, {"type": ONE}):
        [key] = world.enqueue(**{"type": TWO, **more})
        assert is_waiting(world, key), more
    [key] = world.enqueue(type=TWO, collection="b")
    assert world.state(key) == State.SCHEDULED


def test_in_a_transaction_of_the_caller_nothing_is_handed_over(world, listening):
    """G7: it may be rolled back, and nobody's row stays locked meanwhile."""
    host, ear = listening()
    with transaction.atomic():
        [key] = world.enqueue()
        if not IS_SQLITE:  # where nobody has to wait for the transaction
            Thread(say, world, host, ear).result()
    assert is_waiting(world, key)
    assert heard(ear) == []


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_a_daemon_was_handed_and_has_not_heard_of_is_given_back(world, listening, is_lost):
    """G1, G2: another takes it from a lost daemon; a new identity gives it back and claims it."""
    host, _ = listening()
    [key] = world.enqueue()
    if is_lost:
        host.lose_lease()
        other = world.host()
        assert world.store.daemons.sweep(daemon=other.uuid).expired == 1
    else:
        other = world.host(old=host.uuid, holding=())
    assert host.row is None
    [claimed] = other.claim()
    assert (claimed.instance, claimed.number, claimed.restarts) == (key, 2, 0)


def test_a_race_with_the_end_of_the_daemon(world, listening):
    """G1: whoever comes first, it waits in the end or is held by a row that is there."""
    for _ in range(8):
        host, ear = listening()
        leaving = Thread(world.store.daemons.leave, host.uuid)
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


WIDE = "\U0001f71a"


@only_sqlite
class TestSQLite:
    """The daemon's row says what, until the daemon has heard of it."""

    def test_what_nobody_has_heard_of_stays_there(self, world, listening):
        """G1: a daemon that says again that it is idle, and has not looked, would lose it."""
        host, ear = listening()
        [key] = world.enqueue()
        say(world, host, ear)
        assert not host.row.idle
        say(world, host, ear, idle=False)
        [other] = world.enqueue()
        assert is_waiting(world, other)
        assert heard_keys(ear) == [key]
        assert heard(ear) == []
        say(world, host, ear)
        assert (host.row.idle, host.row.channel) == (True, ear.channel)

    def test_it_is_not_heard_of_once_it_was_taken_away(self, world, listening):
        """G1, G6: it would be run twice."""
        host, ear = listening()
        world.enqueue()
        host.lose_lease()
        other = world.host()
        assert world.store.daemons.sweep(daemon=other.uuid).expired == 1
        [claimed] = other.claim()
        assert heard(ear) == []
        other.move(claimed, Event.START, Event.FINISH)

    def test_what_it_no_longer_holds_is_not_waited_for(self, world, listening):
        """G15: it would never be handed anything again."""
        host, ear = listening()
        [key] = world.enqueue()
        host.move(Case(key, 1), Event.RELEASE)
        say(world, host, ear)
        assert (host.row.idle, host.row.channel) == (True, ear.channel)

    def test_a_daemon_that_was_killed_is_handed_nothing(self, world, listening):
        """G15: the kernel has freed its file, which is still there."""
        _, ear = listening()
        folder = Path(world.store.lock_folder)
        os.close(ear._channel_lock._lock)
        try:
            [key] = world.enqueue()
            assert is_waiting(world, key)
            assert [path.stem for path in folder.glob("*.ear")] == [ear.channel]
            # The next that comes removes it.
            _, next_one = listening()
            assert [path.stem for path in folder.glob("*.ear")] == [next_one.channel]
        finally:
            ear._channel_lock._lock = os.open(os.devnull, os.O_RDONLY)

    def test_what_cannot_be_found_out_is_no_error(self, world, listening):
        """A process that may open no more files has always been able to enqueue."""
        listening()
        refusal = OSError(errno.EMFILE, "too many open files")
        with mock.patch("atp.folders.is_free", side_effect=refusal):
            [key] = world.enqueue()
        assert is_waiting(world, key)


@only_postgresql
class TestPostgreSQL:
    """Nobody waits for a lock, and it fits into a notice."""

    def test_neither_to_a_locked_daemon_nor_at_another_isolation(self, world, listening):
        host, _ = listening()
        with transaction.atomic():
            Daemon.objects.select_for_update().get(uuid=host.uuid)
            [key] = Thread(world.enqueue).result()
        assert is_waiting(world, key)
        execute("SET default_transaction_isolation = 'SERIALIZABLE'")
        try:
            [key] = world.enqueue(collection="b")
        finally:
            execute("RESET default_transaction_isolation")
        assert is_waiting(world, key)

    @pytest.mark.parametrize(
        ("character", "size", "is_handed"),
        [(WIDE, 1200, True), ("\\", 1200, True), ("a", 1201, False), (WIDE, 1201, False)],
    )
    def test_inputs_of_any_size_and_kind(self, world, listening, character, size, is_handed):
        """G13: what does not fit into a notice is claimed."""
        _, ear = listening()
        longest = registration("t" * 200)
        world.store.types.register([longest])
        Daemon.objects.update(types=["t" * 200])
        data = json.dumps(character * size, ensure_ascii=False)[:size]
        names = {"identifier": WIDE * 200, "collection": WIDE * 200}
        request = Submission(Payload("json", data), priority=-100, **names)
        [instance] = world.store.enqueueing.enqueue(longest, [request])
        assert (world.state(instance.pk) == State.SCHEDULED) == is_handed
        told = [(claimed.data, claimed.collection) for _, claimed in heard(ear)]
        assert told == [(data, WIDE * 200)] * is_handed
        assert Inputs.objects.get(pk=instance.pk).data == data

    def test_the_first_of_a_connection_is_not_handed(self, world, listening):
        """To plan the statement that hands takes a new session longer than a claim."""
        listening()
        connection.close()
        for state in (State.ACCEPTED, State.SCHEDULED):
            [key] = world.enqueue()
            assert world.state(key) == state
            # What waits would come first.
            remove_by_hand(Instance.objects.all())


def test_what_an_instance_has_of_its_own_counts_to_what_can_be_told(world, listening):
    """G1: a notice of PostgreSQL has 8,000 bytes; what is longer is claimed as ever."""
    host, ear = listening()
    is_told = IS_SQLITE
    data, has = "1" * (100_000 if is_told else 1), options.own_options(carried={"text": "ü" * 3000})
    submission = Submission(Payload("json", data), own=has)
    [made] = world.store.enqueueing.enqueue(registration(), [submission])
    if is_told:
        assert [claimed.data for _, claimed in heard(ear)] == [data]
    else:
        assert world.state(made.pk) == State.ACCEPTED
        assert [each.instance for each in host.claim()] == [made.pk]
