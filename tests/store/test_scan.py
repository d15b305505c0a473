"""The store contract: scan. What was forgotten or does not fit is found, and mended if safe."""

import logging
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import messages
from atp.conf import settings
from atp.models import Daemon, Gate, Instance, Kind, Limit, LogRecord, Schedule, Task, Type
from atp.states import Event, State

from ..nonsense import tells
from .broken import LONG, age, delete_instance, execute, put_back, settle
from .internals import NOWHERE, PLANNING, Cursor, Trouble, scanning
from .schedules import spec
from .world import DAY, HOUR, IS_SQLITE, ONE, SECOND, THREE, TWO, move_of, registration, scope

WHO = "a scan"


def scan(world, **options):
    """Scan once; returns troubles and what was done, by Instance or daemon."""
    found = world.store.upkeep.scan(who=WHO, **options).findings
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
        found = {each.instance: each for each in world.store.upkeep.scan().findings}
        finding = found[world.get(first).uuid]
        assert (finding.since, finding.type) == (world.task(first).due_at, ONE)

    def test_behind_what_is_dated_in_the_future(self, world, idle):
        """By indexes, and by the walk."""
        later = world.store.now() + HOUR
        world.enqueue(3, priority=5, due=later)
        world.enqueue(3, due=later)
        [lost] = world.enqueue(priority=-3)
        age(lost)
        for cursor in (NOWHERE, Cursor()):
            assert scan(world, cursor=cursor) == {lost: (Trouble.UNCLAIMED, False)}

    def test_no_false_alarm(self, world, idle):
        """What is new, dated later, just handed back, served by nobody or by who is busy."""
        world.enqueue(2)
        world.enqueue(due=world.store.now() + HOUR)
        world.enqueue(due=world.store.now() - HOUR)
        world.enqueue(type="store.other")
        types = "store.busy", "store.new", "store.gone"
        busy, new, gone = (world.host(type, name=type) for type in types)
        settle(busy, idle=False)
        for host in (new, gone):
            world.store.daemons.renew(host.uuid, lease=30, idle=True)
        gone.lose_lease()
        for type in types:
            age(*world.enqueue(type=type))
        [held] = world.enqueue()
        age(held)
        claimed = next(each for each in idle.claim() if each.instance == held)
        idle.move(claimed, Event.RELEASE)
        assert scan(world) == {}


class TestLanes:
    """What waits because somebody wants it to is not forgotten (G9)."""

    @pytest.mark.parametrize(
        ("of", "mode", "limits"),
        [
            ((), "drop", {}),
            ((ONE, "a"), "hold", {}),
            ((ONE,), "", {"max_running": 1}),
            ((ONE, "a"), "", {"per_second": 0.01, "rate": "1/100s"}),
        ],
    )
    def test_what_is_held_or_limited_is_no_finding(self, world, idle, of, mode, limits):
        keys = world.enqueue(3, collection="a")
        age(*keys)
        control = world.store.control
        if mode:
            control.shut(scope(*of), mode)
        else:
            control.limit(scope(*of), **limits)
        assert scan(world) == scan(world, cursor=NOWHERE) == {}
        if mode:
            control.open(scope(*of))
        else:
            control.limit(scope(*of), max_running=None, per_second=None, rate="")
        assert scan(world) == {}, "it was opened a moment ago"
        Gate.objects.update(until=world.store.now() - LONG)
        Limit.objects.update(since=world.store.now() - LONG)
        assert scan(world).keys() == scan(world, cursor=NOWHERE).keys() == set(keys)

    def test_beside_more_closed_lanes_than_a_query_could_name(self, world, idle):
        later = {"is_set": True, "since": world.store.now(), "max_running": 1}
        world.store.types.register([registration(TWO)])
        two = Type.objects.get(identifier=TWO)
        Limit.objects.bulk_create(
            Limit(subject=f"lane:{n}", type=two, collection=f"lane {n}", **later)
            for n in range(1100)
        )
        [lost] = world.enqueue()
        [limited] = world.enqueue(type=TWO, collection="lane 7")
        age(lost, limited)
        assert scan(world) == {lost: (Trouble.UNCLAIMED, False)}


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
        ("state", "restarts", "trouble"),
        [
            (State.SCHEDULED, 0, Trouble.TASKLESS),
            (State.PAUSED, 1, Trouble.TASKLESS),
            (State.PAUSED, 1, Trouble.MISMATCHED),
        ],
    )
    def test_one_that_was_claimed_is_expired(self, world, host, state, restarts, trouble):
        """G6: a legal history; G5: charged as a loss. Also if its Task waits, with no daemon."""
        case = world.bring_to(state, host)
        if trouble == Trouble.TASKLESS:
            Task.objects.filter(pk=case.instance).delete()
        else:
            Task.objects.filter(pk=case.instance).update(daemon=None)
        assert scan(world) == {case.instance: (trouble, False)}, "not long enough"
        age(case.instance)
        assert scan(world) == {case.instance: (trouble, True)}
        instance = world.get(case.instance)
        assert (instance.state, instance.lost, instance.restarts) == (State.ACCEPTED, 1, restarts)
        assert told(world, case.instance) == (Event.EXPIRE, logging.WARNING, WHO)
        assert host.claim()[0].number == case.number + 1

    def test_one_that_is_still_run_is_left(self, world, host, case):
        """G3: as long as a daemon says that a worker of its runs it."""
        Task.objects.filter(pk=case.instance).delete()
        age(case.instance)
        workers = [{"worker": 0, "pid": 1, "instance": str(world.get(case.instance).uuid)}]
        world.store.daemons.renew(host.uuid, lease=30, workers=workers)
        assert scan(world) == {case.instance: (Trouble.TASKLESS, False)}
        assert world.task(case.instance) is None
        world.store.daemons.renew(host.uuid, lease=30)
        assert scan(world) == {case.instance: (Trouble.TASKLESS, True)}


class TestTaskThatDoesNotFit:
    @pytest.mark.parametrize("state", [State.FINISHED, State.FAILED])
    def test_of_what_has_ended_is_removed(self, world, host, state):
        case = world.bring_to(state, host)
        put_back(world, case, host if state == State.FINISHED else None)
        assert scan(world, repair=False) == {case.instance: (Trouble.ENDED, False)}
        assert scan(world) == {case.instance: (Trouble.ENDED, True)}
        assert told(world, case.instance) == ("", logging.WARNING, WHO)
        assert world.state(case.instance) == state

    def test_without_an_instance_is_removed(self, world, host):
        case = world.bring_to(State.FINISHED, host)
        put_back(world, case, host)
        delete_instance(case.instance, "inputs", "response", "logrecord")
        assert scan(world) == {ONE: (Trouble.ORPHANED, True)}
        assert not Task.objects.exists()
        [record] = LogRecord.objects.about(f"type:{ONE}").filter(who=WHO)
        assert record.kind == Kind.MENDED
        assert tells(record.message, messages.orphan_removed(case.instance))

    @pytest.mark.parametrize("ahead", [-1, 1])
    def test_of_another_attempt_gets_the_higher_one(self, world, host, case, ahead):
        """G4: an attempt's number is given out once."""
        host.move(case, Event.RELEASE)
        Task.objects.filter(pk=case.instance).update(attempt=case.number + ahead)
        age(case.instance)
        assert scan(world) == {case.instance: (Trouble.MISMATCHED, True)}
        wanted = max(case.number, case.number + ahead)
        assert world.task(case.instance).attempt == world.get(case.instance).attempt == wanted
        # What the log says of attempts is wrong now: it is set right for the last look.
        Task.objects.update(attempt=case.number)
        Instance.objects.update(attempt=case.number)

    def test_stops_nobody(self, world, host):
        """G2, G9: neither claims of one Task, nor a sweep, nor a daemon that leaves or joins."""
        bad = world.bring_to(State.RUNNING, host)
        Task.objects.filter(pk=bad.instance).update(daemon=None, due_at=world.store.now() - LONG)
        if IS_SQLITE:
            assert host.claim(limit=1) == []
            good = world.enqueue(3, collection="behind it")
            claimed = [each.instance for _ in good for each in host.claim(limit=1)]
            assert claimed == good
        age(bad.instance)
        scan(world)
        [odd] = world.enqueue(due=world.store.now() + LONG)
        for end in ("leave", "sweep", "join"):
            host = world.host()
            Task.objects.filter(pk=odd).update(daemon=host.row)
            if end == "leave":
                world.store.daemons.leave(host.uuid)
            elif end == "sweep":
                host.lose_lease()
                assert len(world.store.daemons.sweep().daemons) == 1
            else:
                world.host(old=host.uuid)
            assert host.row is None
            assert world.task(odd).daemon is None


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
        assert world.store.daemons.sweep(daemon=other.uuid).expired == 0
        row = Daemon.objects.get(pk=key)
        assert row.lease_until - world.store.now() > settings.LEASE / 2 * SECOND
        [record] = LogRecord.objects.about(f"daemon:{name}")
        assert (record.who, record.level) == (WHO, logging.WARNING)
        late = move_of(case, Event.FINISH)
        assert host.record(late) == [late], "it cannot write any more (G4)"
        Daemon.objects.filter(pk=key).update(lease_until=world.store.now() - SECOND)
        assert world.store.daemons.sweep(daemon=other.uuid).expired == 1
        assert world.state(case.instance) == State.ACCEPTED

    def test_a_holder_of_many_tasks_hides_no_other(self, world, monkeypatch):
        monkeypatch.setattr(scanning, "MOST", 2)
        world.enqueue(4)
        holders = []
        for count in (3, 1):
            host = world.host()
            host.claim(limit=count)
            holders.append(host.row.pk)
            execute("DELETE FROM atp_daemon WHERE id = %s", host.row.pk)
        assert set(scan(world, repair=False)) == {f"removed-{key}:0" for key in holders}

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


def test_a_scan_walks_through_all_from_the_newest_on(world, monkeypatch):
    """Bounded: a part of each table at a time."""
    monkeypatch.setattr(scanning, "SPAN", 4)
    keys = world.enqueue(10)
    age(*keys)
    for bad in (keys[0], keys[9]):
        Task.objects.filter(pk=bad).delete()
    found, cursor, rounds = [], None, 0
    while rounds == 0 or cursor != Cursor():
        scanned = world.store.upkeep.scan(cursor, repair=False)
        found.append([finding.instance for finding in scanned.findings])
        cursor, rounds = scanned.cursor, rounds + 1
    assert found == [[world.get(keys[9]).uuid], [], [world.get(keys[0]).uuid]]
    assert scan(world).keys() == {keys[9]}
    assert world.store.upkeep.scan(Cursor(instance=keys[1], task=0)).findings


class TestSchedules:
    """Those whose slots are not decided are found (G16)."""

    @pytest.fixture
    def due(self, world):
        """Make a schedule that has been due for so long; returns what a scan finds."""
        world.store.types.register([registration(ONE)])

        def make(ago, **changes):
            world.store.schedules.set(spec("hourly", every=HOUR))
            past = world.store.now() - ago
            changes = {"next_at": past, "due_at": past, **changes}
            Schedule.objects.filter(identifier="hourly").update(**changes)
            return world.store.upkeep.scan(NOWHERE).findings

        return make

    def test_due_for_long_while_a_daemon_lives(self, world, due):
        """G16: nobody can mend it from outside, but it is said.

        Without a daemon it is decided as soon as one comes; health says that none is there.
        """
        assert due(LONG) == ()
        host = world.host(ONE)
        assert world.store.upkeep.scan(NOWHERE).findings == (), "it has just come"
        settle(host, idle=False)
        assert due(5 * SECOND) == ()
        [finding] = due(LONG)
        found = finding.trouble, finding.schedule, finding.type, finding.done
        assert found == (Trouble.UNPLANNED, "hourly", ONE, "")
        assert finding.since == Schedule.objects.get(identifier="hourly").next_at
        assert str(finding).startswith("schedule hourly: ")
        world.store.schedules.plan()
        assert world.store.upkeep.scan(NOWHERE).findings == ()

    def test_one_that_cannot_be_planned_says_why(self, world, due):
        """G16: although it is tried again in a while, and then again."""
        settle(world.host(ONE))
        due(LONG, every=None)
        world.store.schedules.plan()
        [finding] = world.store.upkeep.scan(NOWHERE).findings
        assert "every" in finding.why
        assert finding.why in str(finding)


# A scan walks along indexes; docs/check.md has its cost


# The first or the last of a table's own order is no walk, although SQLite calls it a scan.
FIRST = r"ORDER BY 1 DESC LIMIT 1( OFFSET 5)?$"


@pytest.mark.parametrize("part", ["nothing", "newest", "middle"])
def test_no_table_is_read_from_end_to_end(world, monkeypatch, part):
    """G9: neither what waits for tomorrow nor what is held is in its way."""
    monkeypatch.setattr(scanning, "SPAN", 5)
    settle(world.host(ONE))
    due = world.store.now() + DAY
    lanes = [{"priority": n, "collection": name} for n in range(3) for name in ("", "a")]
    keys = [key for lane in lanes for key in world.enqueue(5, due=due, **lane)]
    age(*world.enqueue(5, collection="held"))
    world.store.control.shut(scope(ONE, "held"), "hold")
    if not IS_SQLITE:
        for name, value in PLANNING.items():  # as in the session of a daemon
            execute(f"SET LOCAL {name} = {value}")
    middle = Cursor(task=keys[15], instance=keys[15])
    cursor = {"nothing": NOWHERE, "newest": None, "middle": middle}[part]
    with CaptureQueriesContext(connection) as asked:
        assert world.store.upkeep.scan(cursor, repair=False).findings == ()
    for query in asked.captured_queries:
        sql = query["sql"]
        if sql.startswith("SELECT") and "clock_timestamp" not in sql:
            plan = explained(sql)
            found = re.search(r"(Seq Scan on|SCAN) atp_(task|instance)\b(?!.*USING)", plan)
            assert not found or re.search(FIRST, sql), f"{sql}\n{plan}"


def explained(sql):
    words = "EXPLAIN QUERY PLAN" if IS_SQLITE else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{words} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


@pytest.mark.slow
def test_nothing_is_found_on_a_queue_that_is_at_work(world, idle):
    """Daemons come and go, everything is in every state, and all of it long ago or now."""
    hosts = [world.host(name=f"h{n}") for n in range(2)]
    states = [state for state in State if state != State.ACCEPTED]
    for old in (True, False):
        keys = [world.bring_to(state, host).instance for host in hosts for state in states]
        keys += world.enqueue(2, type=THREE)
        keys += world.enqueue(2, due=world.store.now() + HOUR)
        if old:
            age(*keys)
        hosts[0].lose_lease()
        before = world.snapshot()
        assert scan(world) == {}
        assert world.snapshot() == before
        world.store.daemons.sweep()
        hosts = [world.host(name=f"n{n}", old=hosts[1].uuid) for n in range(2)]
        hosts[0].claim()
        assert scan(world) == {}
