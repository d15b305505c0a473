"""The store contract: scan. What was forgotten or does not fit is found, and mended if safe."""

import logging
from datetime import timedelta

import pytest

from atp.conf import settings
from atp.models import Daemon, Gate, Instance, Limit, LogRecord, Task, Type
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.store.common import scan as scanning
from atp.store.findings import NOWHERE, Cursor, Trouble
from atp.store.values import Move
from atp.words import log_messages

from ..nonsense import tells
from .broken import LONG, age, execute, put_back, settle
from .world import ONE, SECOND, THREE, TWO, Case, registration, scope

WHO = "a scan"


def scan(world, **options):
    """Scan once; returns troubles and what was done, by Instance or daemon."""
    found = world.store.scan(who=WHO, **options).findings
    keys = dict(Instance.objects.values_list("uuid", "pk"))
    return {keys.get(f.instance, f.daemon or f.type): (f.trouble, bool(f.done)) for f in found}


def told(world, key):
    record = world.log(key)[-1]
    return record.event, record.level, record.who


@pytest.fixture
def idle(world):
    host = world.host(ONE, TWO, name="idle")
    settle(host)
    return host


class TestForgotten:
    def test_due_for_long_while_an_idle_daemon_serves_it(self, world, idle):
        """G2: nobody can mend it from outside, but it is said, and once in its log."""
        first, second = world.enqueue(2)
        age(first, second)
        wanted = {first: (Trouble.UNCLAIMED, False), second: (Trouble.UNCLAIMED, False)}
        for _ in range(3):
            assert scan(world) == wanted
        assert told(world, first) == ("", logging.ERROR, WHO)
        assert len(world.log(first)) == 2
        [finding] = {f for f in world.store.scan().findings if f.instance == world.get(first).uuid}
        assert (finding.since, finding.type) == (world.task(first).due_at, ONE)

    @pytest.mark.parametrize("cursor", [NOWHERE, Cursor()])
    def test_behind_what_is_dated_in_the_future(self, world, idle, cursor):
        """By indexes, and by the walk."""
        later = world.store.now() + timedelta(hours=1)
        world.enqueue(3, priority=5, due=later)
        world.enqueue(3, due=later)
        [lost] = world.enqueue(priority=-3)
        age(lost)
        assert scan(world, cursor=cursor) == {lost: (Trouble.UNCLAIMED, False)}

    def test_by_the_walk_alone(self, world, idle, monkeypatch):
        monkeypatch.setattr("atp.store.common.scan.forgotten.LANES", 0)
        [lost] = world.enqueue()
        age(lost)
        assert scan(world) == {lost: (Trouble.UNCLAIMED, False)}

    def test_no_false_alarm(self, world, idle):
        """What is new, dated later, just handed back, served by nobody or by who is busy."""
        world.enqueue(2)
        world.enqueue(due=world.store.now() + timedelta(hours=1))
        world.enqueue(due=world.store.now() - timedelta(hours=1))
        world.enqueue(type="store.other")
        busy = world.host("store.busy", name="busy")
        settle(busy, idle=False)
        new = world.host("store.new", name="new")
        world.store.renew(new.uuid, lease=30, idle=True)
        gone = world.host("store.gone", name="gone")
        world.store.renew(gone.uuid, lease=30, idle=True)
        gone.lose_lease()
        for type in ("store.busy", "store.new", "store.gone"):
            age(*world.enqueue(type=type))
        [held] = world.enqueue()
        age(held)
        claimed = next(each for each in idle.claim() if each.instance == held)
        idle.move(claimed, Event.RELEASE)
        assert scan(world) == {}


class TestLanes:
    """What waits because somebody wants it to is not forgotten (G9)."""

    @pytest.mark.parametrize("mode", ["hold", "drop"])
    @pytest.mark.parametrize("of", [(), (ONE,), (ONE, "a")])
    def test_what_is_held_is_no_finding(self, world, idle, of, mode):
        keys = world.enqueue(2, collection="a")
        age(*keys)
        world.store.shut(scope(*of), mode)
        assert scan(world) == scan(world, cursor=NOWHERE) == {}
        world.store.open(scope(*of))
        assert scan(world) == {}, "it was opened a moment ago"
        Gate.objects.update(until=world.store.now() - LONG)
        assert scan(world).keys() == scan(world, cursor=NOWHERE).keys() == set(keys)

    def test_beside_a_lane_that_is_held(self, world, idle):
        age(*world.enqueue(2, collection="a"), *world.enqueue(2, priority=5))
        lost = world.enqueue(2, collection="b")
        age(*lost)
        for collection in ("a", ""):
            world.store.shut(scope(ONE, collection), "hold")
        wanted = dict.fromkeys(lost, (Trouble.UNCLAIMED, False))
        assert scan(world) == scan(world, cursor=NOWHERE) == wanted

    def test_beside_more_closed_lanes_than_a_query_could_name(self, world, idle):
        later = {"is_set": True, "since": world.store.now(), "max_running": 1}
        world.store.register([registration(TWO)])
        two = Type.objects.get(identifier=TWO)
        Limit.objects.bulk_create(
            Limit(subject=f"lane:{n}", type=two, collection=f"lane {n}", **later)
            for n in range(1100)
        )
        [lost] = world.enqueue()
        [limited] = world.enqueue(type=TWO, collection="lane 7")
        age(lost, limited)
        assert scan(world) == {lost: (Trouble.UNCLAIMED, False)}

    @pytest.mark.parametrize("limits", [{"max_running": 1}, {"per_second": 0.01, "rate": "1/100s"}])
    @pytest.mark.parametrize("of", [(ONE,), (ONE, "a")])
    def test_what_is_limited_is_no_finding(self, world, idle, of, limits):
        keys = world.enqueue(3, collection="a")
        world.store.limit(scope(*of), **limits)
        age(*keys)
        assert scan(world) == scan(world, cursor=NOWHERE) == {}
        world.store.limit(scope(*of), max_running=None, per_second=None, rate="")
        assert scan(world) == {}, "it was limited a moment ago"
        Limit.objects.update(since=world.store.now() - LONG)
        assert scan(world).keys() == scan(world, cursor=NOWHERE).keys() == set(keys)

    def test_in_every_lane(self, world, idle, monkeypatch):
        monkeypatch.setattr("atp.store.common.scan.forgotten.LANES", 4)
        later = world.store.now() + timedelta(hours=1)
        for number in range(6):
            world.enqueue(2, collection=f"later {number}", due=later, priority=7)
        lost = [key for name in "abcdef" for key in world.enqueue(collection=name)]
        age(*lost)
        assert len(scan(world, cursor=NOWHERE)) == 4
        assert scan(world).keys() == set(lost), "the rest is found by the walk"


class TestInstanceWithoutTask:
    """G1: what lives is in the queue."""

    def test_one_that_waits_is_given_a_task(self, world, idle):
        [key] = world.enqueue(priority=7, collection="esa")
        Task.objects.filter(pk=key).delete()
        assert scan(world) == {key: (Trouble.TASKLESS, False)}, "not long enough"
        age(key)
        assert scan(world, repair=False) == {key: (Trouble.TASKLESS, False)}
        assert world.task(key) is None
        assert scan(world) == {key: (Trouble.TASKLESS, True)}
        task = world.task(key)
        assert (task.priority, task.collection, task.daemon) == (7, "esa", None)
        assert told(world, key) == ("", logging.WARNING, WHO)
        assert scan(world) == {}
        assert [claimed.instance for claimed in idle.claim()] == [key]

    @pytest.mark.parametrize(
        ("state", "restarts"), [(State.SCHEDULED, 0), (State.RUNNING, 1), (State.PAUSED, 1)]
    )
    def test_one_that_was_claimed_is_expired(self, world, state, restarts):
        """G6: a legal history; G5: charged as a loss."""
        host = world.host()
        case = world.bring_to(state, host)
        Task.objects.filter(pk=case.instance).delete()
        age(case.instance)
        assert scan(world) == {case.instance: (Trouble.TASKLESS, True)}
        instance = world.get(case.instance)
        assert (instance.state, instance.lost, instance.restarts) == (State.ACCEPTED, 1, restarts)
        assert told(world, case.instance) == (Event.EXPIRE, logging.WARNING, WHO)
        late = Case(case.instance, case.attempt)
        assert host.claim()[0].attempt == late.attempt + 1

    def test_one_that_is_still_run_is_left(self, world):
        """G3: as long as a daemon says that a worker of its runs it."""
        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        Task.objects.filter(pk=case.instance).delete()
        age(case.instance)
        workers = [{"worker": 0, "pid": 1, "instance": str(world.get(case.instance).uuid)}]
        world.store.renew(host.uuid, lease=30, workers=workers)
        assert scan(world) == {case.instance: (Trouble.TASKLESS, False)}
        assert world.task(case.instance) is None
        world.store.renew(host.uuid, lease=30)
        assert scan(world) == {case.instance: (Trouble.TASKLESS, True)}

    def test_one_that_was_lost_too_often_fails(self, world):
        """G5."""
        host = world.host()
        of = registration(max_restarts=0)
        case = world.bring_to(State.RUNNING, host, type=of)
        Task.objects.filter(pk=case.instance).delete()
        age(case.instance)
        assert scan(world) == {case.instance: (Trouble.TASKLESS, True)}
        assert world.get(case.instance).reason == Reason.STALE
        assert scan(world) == {}


class TestTaskThatDoesNotFit:
    @pytest.mark.parametrize("state", [State.FINISHED, State.FAILED])
    @pytest.mark.parametrize("held", [False, True])
    def test_of_what_has_ended_is_removed(self, world, state, held):
        host = world.host()
        case = world.bring_to(state, host)
        put_back(world, case, host if held else None)
        assert scan(world, repair=False) == {case.instance: (Trouble.ENDED, False)}
        assert scan(world) == {case.instance: (Trouble.ENDED, True)}
        assert told(world, case.instance) == ("", logging.WARNING, WHO)
        assert world.state(case.instance) == state

    @pytest.mark.parametrize("held", [False, True])
    def test_without_an_instance_is_removed(self, world, held):
        host = world.host()
        case = world.bring_to(State.FINISHED, host)
        put_back(world, case, host if held else None)
        LogRecord.objects.filter(instance=case.instance).delete()
        execute("DELETE FROM atp_inputs WHERE instance_id = %s", case.instance)
        execute("DELETE FROM atp_response WHERE instance_id = %s", case.instance)
        execute("DELETE FROM atp_instance WHERE id = %s", case.instance)
        assert scan(world) == {ONE: (Trouble.ORPHANED, True)}
        assert not Task.objects.exists()
        [record] = LogRecord.objects.about(f"type:{ONE}").filter(who=WHO)
        assert record.kind == Kind.MENDED
        assert tells(record.message, log_messages.orphan_removed(case.instance))

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.RUNNING, State.PAUSED])
    def test_that_waits_although_claimed_is_expired(self, world, state):
        host = world.host()
        case = world.bring_to(state, host)
        Task.objects.filter(pk=case.instance).update(daemon=None)
        assert scan(world) == {case.instance: (Trouble.MISMATCHED, False)}, "not long enough"
        age(case.instance)
        assert scan(world) == {case.instance: (Trouble.MISMATCHED, True)}
        assert world.state(case.instance) == State.ACCEPTED
        assert told(world, case.instance)[0] == Event.EXPIRE

    def test_that_is_held_although_waiting_is_freed(self, world):
        host = world.host()
        [key] = world.enqueue()
        Task.objects.filter(pk=key).update(daemon=host.row)
        age(key)
        assert scan(world) == {key: (Trouble.MISMATCHED, True)}
        assert [claimed.instance for claimed in host.claim()] == [key]

    @pytest.mark.parametrize("ahead", [-1, 1])
    def test_of_another_attempt_gets_the_higher_one(self, world, ahead):
        """G4: an attempt's number is given out once."""
        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        host.move(case, Event.RELEASE)
        Task.objects.filter(pk=case.instance).update(attempt=case.attempt + ahead)
        age(case.instance)
        assert scan(world) == {case.instance: (Trouble.MISMATCHED, True)}
        wanted = max(case.attempt, case.attempt + ahead)
        assert world.task(case.instance).attempt == world.get(case.instance).attempt == wanted
        # What the log says of attempts is wrong now: it is set right for the last look.
        Task.objects.update(attempt=case.attempt)
        Instance.objects.update(attempt=case.attempt)

    def test_stops_nobody(self, world):
        """G2: neither a claim, nor a sweep, nor a daemon that leaves or joins anew."""
        host = world.host()
        bad = world.bring_to(State.RUNNING, host)
        Task.objects.filter(pk=bad.instance).update(daemon=None, due_at=world.store.now() - LONG)
        if type(world.store).__name__ != "PostgreSQLStore":
            assert host.claim(limit=1) == []
            good = world.enqueue(2)
            assert [claimed.instance for claimed in host.claim(limit=2)] == good
        age(bad.instance)
        scan(world)
        [odd] = world.enqueue(due=world.store.now() + LONG)
        for end in ("leave", "sweep", "join"):
            host = world.host()
            Task.objects.filter(pk=odd).update(daemon=host.row)
            if end == "leave":
                world.store.leave(host.uuid)
            elif end == "sweep":
                host.lose_lease()
                assert len(world.store.sweep().daemons) == 1
            else:
                world.host(old=host.uuid)
            assert host.row is None
            assert world.task(odd).daemon is None

    def test_hides_no_other_lane(self, world):
        """G9: not even where claims are of one at a time, and it is in the first lane."""
        if type(world.store).__name__ == "PostgreSQLStore":
            pytest.skip("it takes such a row")
        host = world.host()
        bad = world.bring_to(State.RUNNING, host)
        Task.objects.filter(pk=bad.instance).update(daemon=None)
        good = [*world.enqueue(3, collection="z"), *world.enqueue(3, type=TWO)]
        claimed = [each.instance for _ in range(8) for each in host.claim(limit=1)]
        assert sorted(claimed) == sorted(good)
        Task.objects.filter(pk=bad.instance).update(daemon=host.row)

    def test_that_was_missed_and_does_not_fit_is_not_missed_for_ever(self, world):
        case = world.bring_to(State.RUNNING, world.host())
        late = world.store.now() - SECOND
        Task.objects.filter(pk=case.instance).update(daemon=None, start_before=late)
        assert world.store.miss() == 0
        age(case.instance)
        scan(world)
        world.store.miss()


class TestHeldByWhoIsGone:
    def test_a_daemon_without_a_row_gets_one_that_is_swept(self, world):
        """G1 and G3: after a lease, in which it has learnt that it has lost its own."""
        host, other = world.host(name="gone"), world.host()
        case = world.bring_to(State.RUNNING, host)
        key = host.row.pk
        execute("DELETE FROM atp_daemon WHERE id = %s", key)
        name = f"removed-{key}:0"
        assert scan(world, repair=False) == {name: (Trouble.OWNERLESS, False)}
        assert scan(world) == {name: (Trouble.OWNERLESS, True)}
        assert scan(world) == {}
        assert world.store.sweep(daemon=other.uuid).expired == 0
        row = Daemon.objects.get(pk=key)
        assert row.lease_until - world.store.now() > timedelta(seconds=settings.LEASE / 2)
        [record] = LogRecord.objects.about(f"daemon:{name}")
        assert (record.who, record.level) == (WHO, logging.WARNING)
        assert len(host.record(finish(case))) == 1, "it cannot write any more (G4)"
        Daemon.objects.filter(pk=key).update(lease_until=world.store.now() - SECOND)
        assert world.store.sweep(daemon=other.uuid).expired == 1
        assert world.state(case.instance) == State.ACCEPTED

    def test_a_daemon_that_nobody_sweeps(self, world, idle):
        lost = world.host(name="lost")
        case = world.bring_to(State.RUNNING, lost)
        lost.lose_lease()
        assert scan(world) == {}, "not for long"
        Daemon.objects.filter(uuid=lost.uuid).update(lease_until=world.store.now() - LONG)
        name = str(lost.row)
        assert scan(world, repair=False) == {name: (Trouble.UNSWEPT, False)}
        assert scan(world) == {name: (Trouble.UNSWEPT, True)}
        assert world.state(case.instance) == State.ACCEPTED
        assert lost.row is None

    def test_where_nobody_was_there_to_sweep(self, world):
        """The others may have been cut off by what cut this one off."""
        lost = world.host(name="lost")
        world.bring_to(State.RUNNING, lost)
        lost.lose_lease()
        Daemon.objects.filter(uuid=lost.uuid).update(lease_until=world.store.now() - LONG)
        world.host(name="new")
        assert scan(world) == {}


class TestWalk:
    def test_it_goes_through_all_from_the_newest_on(self, world, monkeypatch):
        """Bounded: a part of each table at a time."""
        monkeypatch.setattr(scanning, "SPAN", 4)
        keys = world.enqueue(10)
        age(*keys)
        for bad in (keys[0], keys[9]):
            Task.objects.filter(pk=bad).delete()
        found, cursor, rounds = [], None, 0
        while rounds == 0 or cursor != Cursor():
            scanned = world.store.scan(cursor, repair=False)
            found.append([world_key(finding) for finding in scanned.findings])
            cursor, rounds = scanned.cursor, rounds + 1
        assert found == [[keys[9]], [], [keys[0]]]
        assert scan(world).keys() == {keys[9]}
        assert world.store.scan(Cursor(instance=keys[1], task=0)).findings

    def test_many_are_mended_in_one_round(self, world, monkeypatch):
        monkeypatch.setattr("atp.store.common.scan.pairs.MOST", 3)
        keys = world.enqueue(8)
        age(*keys)
        Task.objects.all().delete()
        mended, cursor = 0, None
        while cursor != Cursor():
            scanned = world.store.scan(cursor)
            mended, cursor = mended + len(scanned.findings), scanned.cursor
        assert mended == 8

    def test_an_empty_queue(self, world):
        scanned = world.store.scan()
        assert (scanned.findings, scanned.is_round) == ((), True)

    def test_few_queries(self, world, idle, django_assert_max_num_queries):
        world.enqueue(50)
        idle.claim(20)
        with django_assert_max_num_queries(18):
            world.store.scan()
        with django_assert_max_num_queries(9):
            world.store.scan(NOWHERE, repair=False)


def test_nothing_is_found_on_a_queue_that_is_at_work(world, idle):
    """Daemons come and go, everything is in every state, and all of it long ago or now."""
    hosts = [world.host(name=f"h{n}") for n in range(3)]
    for old in (True, False):
        states = [state for state in State if state != State.ACCEPTED]
        cases = [world.bring_to(state, host) for host in hosts for state in states]
        keys = [case.instance for case in cases] + world.enqueue(2, type=THREE)
        keys += world.enqueue(2, due=world.store.now() + timedelta(hours=1))
        if old:
            age(*keys)
        assert scan(world) == {}
        settle(world.host(ONE, TWO, name="another"))
        hosts[0].lose_lease()
        assert scan(world) == {}
        world.store.sweep()
        world.store.leave(hosts[1].uuid)
        hosts = [world.host(name=f"n{n}", old=hosts[2].uuid) for n in range(3)]
        hosts[0].claim()
        before = world.snapshot()
        assert scan(world) == {}
        assert world.snapshot() == before


def finish(case):
    return Move(event=Event.FINISH, instance=case.instance, attempt=case.attempt)


def world_key(finding):
    return Instance.objects.get(uuid=finding.instance).pk
