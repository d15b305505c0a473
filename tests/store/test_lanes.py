"""The store contract: lanes, and how claims are shared between them (G9)."""

from collections import Counter
from dataclasses import asdict

import pytest
from django.db.models import F

from atp import messages
from atp.exceptions import GateChanged
from atp.models import Gate, Kind, Limit, LogRecord, Type
from atp.states import Event
from atp.store.common.store import ORMStore
from atp.store.facts import Changes

from ..nonsense import tells
from .world import DAY, HOUR, ONE, SECOND, THREE, TWO, scope


def lanes(claimed):
    return Counter((each.type, each.collection) for each in claimed)


def claimed(host, times, limit):
    """Claim so many times; returns the keys in their order."""
    return [each.instance for _ in range(times) for each in host.claim(limit)]


class TestShares:
    @pytest.fixture(autouse=True)
    def each_claim_looks_at_all_lanes(self, monkeypatch):
        """After a slow look, claims keep to the lanes that it found; this machine may be slow."""
        monkeypatch.setattr("atp.store.sqlite.claims.AGAIN", 0.0)
        monkeypatch.setattr("atp.store.postgresql.claims.AGAIN", 0.0)

    def test_what_a_lane_leaves_others_of_its_type_take_first(self, world):
        world.enqueue(50)
        world.enqueue(1, type=TWO, collection="a")
        world.enqueue(50, type=TWO, collection="b")
        world.enqueue(2, type=THREE, collection="a")
        world.enqueue(50, type=THREE, collection="b")
        claimed = world.host().claim(30)
        assert Counter(each.type for each in claimed) == {ONE: 10, TWO: 10, THREE: 10}
        assert lanes(claimed)[THREE, "b"] == 8

    @pytest.mark.parametrize("limit", [1, 3])
    def test_small_claims_take_turns(self, world, limit):
        for collection in ("", "a", "b", "c"):
            world.enqueue(30, collection=collection)
        world.enqueue(60, type=TWO)
        host = world.host()
        found = lanes(task for _ in range(24 // limit) for task in host.claim(limit))
        assert found[TWO, ""] == 12
        assert all(found[ONE, name] == 3 for name in ("", "a", "b", "c"))

    def test_by_weight(self, world):
        for type in (ONE, TWO, THREE):
            world.enqueue(100, type=type)
        world.store.control.limit(scope(ONE), weight=3.0)
        found = Counter(each.type for each in world.host().claim(50))
        assert found == {ONE: 30, TWO: 10, THREE: 10}

    def test_who_was_idle_does_not_get_back_what_it_did_not_ask_for(self, world):
        world.enqueue(100)
        host = world.host()
        claimed(host, 20, 1)
        world.enqueue(100, type=TWO)
        found = Counter(host.claim(1)[0].type for _ in range(20))
        assert abs(found[ONE] - found[TWO]) <= 1

    def test_who_comes_seldom_comes_first(self, world):
        """What waits behind a burst waits for no more than is in hand already."""
        world.enqueue(50, collection="burst")
        host = world.host()
        host.claim(10)
        [key] = world.enqueue(collection="seldom")
        assert host.claim(10)[0].instance == key
        [key] = world.enqueue(type=TWO)
        assert host.claim(10)[0].instance == key


class TestMany:
    @pytest.mark.parametrize(("limit", "lane"), [(1, "a"), (4, "")])
    def test_what_is_dated_in_the_future_hides_no_type(self, world, limit, lane):
        """Where others have more than enough at first sight."""
        later = world.store.now() + HOUR
        world.enqueue(2, type=TWO, due=later, priority=5)
        world.enqueue(2, type=TWO, due=later, priority=4, collection="a")
        for priority in range(4):
            for collection in ("", "a", "b"):
                world.enqueue(20, priority=priority, collection=collection)
        [key] = world.enqueue(type=TWO, collection=lane)
        assert key in claimed(world.host(), 2, limit)

    def break_off(self, world, monkeypatch, *, steps, count):
        """Let a look end after so many steps, of so many lanes with nothing due."""
        monkeypatch.setattr("atp.store.common.turns.STEPS", steps)
        for n in range(count):
            world.enqueue(collection=f"lane {n:02}", due=world.store.now() + HOUR)

    @pytest.mark.parametrize("limit", [1, 10])
    def test_a_look_goes_on_though_other_types_give_enough(self, world, monkeypatch, limit):
        """G9: however many lanes of a Type have nothing due, it is not passed over for ever."""
        self.break_off(world, monkeypatch, steps=100, count=80)
        [key] = world.enqueue(collection="z")
        for n in range(20):
            world.enqueue(10, type=TWO, collection=f"lane {n:02}")
        assert key in claimed(world.host(), 6, limit)

    @pytest.mark.parametrize("name", ["", "z"])
    def test_a_full_lane_is_not_left_while_a_look_is_broken_off(self, world, monkeypatch, name):
        """G9: it goes on next time, however many lanes have nothing due."""
        self.break_off(world, monkeypatch, steps=7, count=40)
        keys = [key for n in (3, 17, 38) for key in world.enqueue(collection=f"lane {n:02}")]
        keys += world.enqueue(100, collection=name)
        assert world.store.daemons.outlook([ONE]).due <= 0
        assert sorted(claimed(world.host(ONE), 32, 5)) == sorted(keys)

    def test_names_of_all_sorts(self, world):
        names = ["", "é", "Z", "a'b", 'a"b', "a\\b", "{a,b}", "NULL", "日本", " ", "a" * 200]
        keys = [key for name in names for key in world.enqueue(2, collection=name)]
        assert sorted(claimed(world.host(), 2 * len(names), 1)) == sorted(keys)


class TestGates:
    @pytest.mark.parametrize(
        ("of", "mode"), [((), "hold"), ((ONE,), "drop"), ((ONE, "a"), "hold"), ((), "drop")]
    )
    def test_nothing_is_claimed_of_what_is_shut(self, world, of, mode):
        made = {(ONE, "a"): world.enqueue(3, collection="a"), (ONE, ""): world.enqueue(3)}
        made[TWO, ""] = world.enqueue(3, type=TWO)
        world.store.control.shut(scope(*of), mode)
        expected = [key for lane, keys in made.items() if lane[: len(of)] != of for key in keys]
        host = world.host()
        assert sorted(each.instance for each in host.claim()) == sorted(expected)
        assert world.store.control.open(scope(*of))
        assert len(host.claim()) == 9 - len(expected)
        assert not world.store.control.open(scope(*of))

    def test_it_opens_by_itself_and_leaves_nothing_in_the_end(self, world):
        world.enqueue(2)
        world.store.control.shut(scope(ONE), "hold", until=world.store.now() + HOUR)
        host = world.host()
        assert host.claim() == []
        Gate.objects.update(until=world.store.now() - SECOND)
        assert len(host.claim()) == 2
        Gate.objects.update(until=F("until") - 2 * DAY)
        world.store.control.shut(scope(ONE, "c"), "hold")
        assert [gate.collection for gate in Gate.objects.all()] == ["c"]

    def test_the_outlook_sees_what_is_not_held(self, world):
        now = world.store.now()
        world.enqueue(2)
        world.enqueue(collection="a", due=now + 300 * SECOND)
        world.enqueue(type=TWO, due=now + 540 * SECOND)
        look = world.store.daemons.outlook
        assert look([ONE, TWO]).due <= 0
        world.store.control.shut(scope(ONE, ""), "hold")
        assert look([ONE, TWO]).due == pytest.approx(300, abs=5)
        world.store.control.shut(scope(ONE), "hold")
        assert look([ONE, TWO]).due == pytest.approx(540, abs=5)
        world.store.control.shut(scope(), "hold", until=now + 60 * SECOND)
        assert look([ONE, TWO]).due == pytest.approx(60, abs=5)
        world.store.control.shut(scope(), "hold")
        assert look([ONE, TWO]).due is None
        assert not look([ONE, TWO]).drops

    def test_what_waits_where_it_is_dropped_fails(self, world):
        """G6: with the reason, and who it was."""
        dropped, others = world.enqueue(5, collection="a"), world.enqueue(2)
        host = world.host()
        claimed = {each.instance for each in host.claim(2) if each.collection == "a"}
        gate = world.store.control.shut(scope(ONE, "a"), "drop", who="tests", reason="spam")
        assert world.store.daemons.outlook([ONE]).drops
        counts = [world.store.gates.drop(who="host", limit=2) for _ in range(4)]
        assert sum(counts) == len(dropped) - len(claimed)
        assert max(counts) == 2
        for key in set(dropped) - claimed:
            instance = world.get(key)
            assert (instance.state, instance.reason) == ("FAILED", "DROPPED")
            assert tells(world.log(key)[-1].message, messages.dropped(gate))
        assert world.state(others[1]) in ("ACCEPTED", "SCHEDULED")
        assert not world.store.daemons.outlook([ONE]).drops

    def test_what_was_there_is_told(self, world):
        """One wins, the other is told what was there, and so is the log."""
        world.enqueue()
        until = world.store.now() + HOUR
        gate = world.store.control.shut(scope(ONE), "drop", who="ann", reason="spam", until=until)
        assert gate.was is None
        gate = world.store.control.shut(scope(ONE), "hold", who="bob")
        assert (gate.was.mode, gate.was.who, gate.was.reason) == ("drop", "ann", "spam")
        assert gate.was.until == until
        [*_, last] = LogRecord.objects.about(f"type:{ONE}")
        assert (last.who, last.kind, last.detail) == ("bob", Kind.GATE, "hold")
        assert tells(last.message, messages.gate_set("hold", was=gate.was))
        assert world.store.control.open(scope(ONE), who="ann").who == "bob"
        [*_, last] = LogRecord.objects.about(f"type:{ONE}")
        assert (last.who, last.kind, last.detail) == ("ann", Kind.GATE, "open")
        assert world.store.control.open(scope(ONE), who="ann") is None
        assert world.store.control.shut(scope(ONE), "hold").was is None

    @pytest.mark.parametrize("verb", [("shut", "hold"), ("open",)], ids=["hold", "open"])
    def test_a_gate_that_is_not_as_expected_stays(self, world, verb):
        world.enqueue()
        name, *mode = verb

        def perform(expected):
            act = getattr(world.store.control, name)
            return act(scope(ONE), *mode, who="bob", expected=expected)

        with pytest.raises(GateChanged, match="it is open"):
            perform("hold")
        shut = world.store.control.shut(scope(ONE), "drop", who="ann", reason="spam")
        before = LogRecord.objects.count()
        for expected in ("open", "hold", shut.since - SECOND):
            with pytest.raises(GateChanged, match=r"dropped by ann, since .*: spam") as raised:
                perform(expected)
            assert raised.value.gate.who == "ann"
        gate = Gate.objects.get()
        assert (gate.mode, gate.who, gate.since) == ("drop", "ann", shut.since)
        assert LogRecord.objects.count() == before
        perform(shut.since)
        assert not world.store.daemons.outlook([ONE]).drops


class TestLimits:
    def test_no_more_are_held_than_may_run(self, world):
        world.enqueue(10)
        world.enqueue(3, type=TWO)
        world.store.control.limit(scope(ONE), max_running=2)
        first, second = world.host(), world.host()
        found = [*first.claim(), *second.claim()]
        assert lanes(found) == {(ONE, ""): 2, (TWO, ""): 3}
        assert [each.type for each in found if each.limited] == [ONE, ONE]
        [one, _] = [each for each in found if each.type == ONE]
        holder = first if one.instance in first.holds() else second
        holder.move(one, Event.START, Event.FINISH)
        assert lanes(second.claim()) == {(ONE, ""): 1}
        assert first.claim() == []

    @pytest.mark.parametrize(("beside", "whole"), [("", False), ("b", True), ("z", False)])
    def test_limited_lanes_take_turns(self, world, beside, whole):
        """G9: whichever lane of the same Type is not limited, or only with all others."""
        if whole:
            world.enqueue(type=ONE, collection="x", due=world.store.now() + HOUR)
            world.store.control.limit(scope(ONE), max_running=6)
        for name in ("a", "c", beside):
            world.enqueue(20, collection=name)
        for name in ("a", "c", "empty"):
            world.store.control.limit(scope(ONE, name), max_running=3)
        host = world.host()
        found = Counter()
        for _ in range(12):
            for task in host.claim(1, [ONE], free=1):
                found[task.collection] += 1
                host.move(task, Event.START, Event.FINISH)
        assert abs(found["a"] - found["c"]) <= 1
        assert found[beside] >= 3

    @pytest.mark.parametrize("end", [Event.RELEASE, Event.RETRY])
    def test_what_is_paused_counts_and_what_goes_back_gives_its_place_back(self, world, end):
        world.enqueue(3)
        world.store.control.limit(scope(ONE), max_running=1)
        assert world.store.daemons.outlook([ONE]).due <= 0
        host = world.host()
        [task] = host.claim()
        host.move(task, Event.START, Event.PAUSE)
        assert host.claim() == world.host().claim() == []
        assert world.store.daemons.outlook([ONE]).due is None
        host.move(task, Event.RESUME)
        host.move(task, end, delay=HOUR if end == Event.RETRY else None)
        assert world.store.daemons.outlook([ONE]).due <= 0
        [other] = host.claim()
        assert (other.instance == task.instance) == (end == Event.RELEASE)
        assert host.claim() == []

    def test_what_is_moved_to_another_lane_counts_there(self, world):
        first, second = world.enqueue(2, collection="a")
        world.store.control.limit(scope(ONE, "b"), max_running=1)
        world.store.control.change([first, second], Changes(collection="b"))
        host = world.host()
        [task] = host.claim()
        assert (task.instance, task.collection) == (first, "b")
        world.store.control.change([second], Changes(collection="c"))
        [task] = host.claim()
        assert (task.instance, task.collection) == (second, "c")

    def test_a_rate_lets_go_what_came_together(self, world):
        world.enqueue(10)
        world.store.control.limit(scope(ONE), per_second=0.001, burst=4, rate="1/1000s")
        host = world.host()
        assert len(host.claim()) == 4
        assert host.claim() == []
        assert world.store.daemons.outlook([ONE]).due == pytest.approx(1000, abs=20)
        Limit.objects.update(refilled=F("refilled") - 2500 * SECOND)
        assert len(host.claim()) == 2

    def test_what_an_operator_has_set_stays_until_it_is_left_to_the_code(self, world):
        world.enqueue(10)
        for count in (3, 4):
            world.store.control.declare({ONE: {"max_running": count}})
        [limit] = Type.objects.get(identifier=ONE).limits.all()
        assert (limit.max_running, limit.is_set) == (4, False)
        world.store.control.limit(scope(ONE), weight=2.0)
        world.store.control.declare({ONE: {"max_running": 5}})
        limit.refresh_from_db()
        assert (limit.max_running, limit.weight, limit.is_set) == (4, 2.0, True)
        assert world.store.control.unlimit(scope(ONE), {"max_running": 5}, who="me")
        limit.refresh_from_db()
        assert (limit.max_running, limit.weight, limit.is_set) == (5, 1.0, False)
        assert len(world.host().claim()) == 5
        [*_, last] = LogRecord.objects.about(f"type:{ONE}")
        assert (last.who, last.kind, last.detail) == ("me", Kind.LIMITS, "left")
        world.store.control.limit(scope(ONE), weight=2.0)
        assert world.store.control.unlimit(scope(ONE), {})
        assert not world.store.control.unlimit(scope(ONE), {})
        world.store.control.declare({ONE: {}})
        assert not Type.objects.get(identifier=ONE).limits.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "count", "limit", "least"),
    [
        ([(ONE, name) for name in "abcdefghij"], 200, 40, 10),
        ([(ONE, name) for name in "abcdefghij"], 200, 2, 10),
        ([(ONE, "a"), (ONE, "b"), (TWO, "")], 120, 40, 18),
        ([(ONE, "a"), (ONE, "b"), (TWO, "")], 120, 1, 18),
    ],
    ids=["many", "many-by-few", "beside-a-type", "beside-a-type-one-by-one"],
)
def test_a_limited_lane_gets_as_much_as_each_of_the_others(world, lanes, count, limit, least):
    """G9: its limit, however high, is no larger share; nor does another Type take from them."""
    for type, collection in lanes:
        world.enqueue(150, type=type, collection=collection)
    world.store.control.limit(scope(ONE, "a"), max_running=500)
    host, found = world.host(), Counter()
    while found.total() < count:
        found.update((task.type, task.collection) for task in host.claim(limit, free=limit))
    assert found.keys() == set(lanes)
    assert min(found.values()) >= least, found
    assert len(lanes) == 3 or max(found.values()) <= 30, found


@pytest.mark.parametrize("first", [-60, 300])
def test_outlook_is_that_of_the_portable_store(world, first):
    """The portable one reads each fact by itself; databases with a store of their own do not."""
    host = world.host(ONE, TWO, request="quiet")
    world.enqueue(2, collection="full")
    world.store.control.limit(scope(ONE, "full"), max_running=1)
    host.claim()
    for type, lane, due in ((ONE, "held", -90), (ONE, "", first), (TWO, "", 400), (THREE, "", -90)):
        world.enqueue(type=type, collection=lane, due=world.store.now() + due * SECOND)
    world.store.control.shut(scope(ONE, "held"), "hold")
    world.enqueue(collection="held", start_before=world.store.now() - SECOND)
    world.host().lose_lease()
    ours, theirs = (
        asdict(store.daemons.outlook([ONE, TWO], daemon=host.uuid))
        for store in (world.store, ORMStore(world.store.alias))
    )
    assert (ours["late"], ours["lost"], ours["request"]) == (True, True, "quiet")
    assert ours["due"] == pytest.approx(first, abs=20)
    for name in ("due", "planned"):
        assert ours.pop(name) == pytest.approx(theirs.pop(name), abs=20)
    assert ours == theirs
