"""What a dispatcher makes of what its workers do: hands, starts, ends, and what must not go on."""

import selectors
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from atp.daemon.dispatcher.core import Core
from atp.daemon.dispatcher.intake import AGAIN, MOST, Intake
from atp.daemon.dispatcher.unrecorded import BATCH, UnrecordedChanges
from atp.daemon.membership.identity import Identity
from atp.daemon.pool import hand_out, stuck_workers
from atp.daemon.pool import pool as pool_module
from atp.daemon.pool.attempts import Attempts
from atp.daemon.pool.downstreams import SOONEST, Downstreams
from atp.daemon.pool.pool import STEAL_AFTER, Pool
from atp.daemon.pool.reader import Reader
from atp.daemon.pool.stuck_workers import KILL_AFTER, TAKE_BACK_AFTER, StuckWorkers
from atp.daemon.pool.worker_link import WorkerLink
from atp.daemon.shared.channel import Channel
from atp.daemon.shared.messages import Kill, Look
from atp.daemon.shared.outcome import Kind, Outcome
from atp.daemon.shared.packing import packed_end
from atp.daemon.shared.running_page import NEVER, Page, Running
from atp.daemon.shared.tokens import Tokens
from atp.daemon.system.processes import uptime
from atp.states import Event, State
from atp.store.values import Message, Move, Note
from tests.samples import claimed


@pytest.fixture
def linked():
    """Return a function that makes the link to a worker, and the channel of that worker."""
    made = []

    def link(slot, page):
        ours, theirs = Channel.pair()
        link = WorkerLink(slot, 100 + slot, ours, Tokens.pipe(), page.ring(slot))
        made.extend([link, theirs])
        return link, theirs

    yield link
    for each in made:
        each.close()


@pytest.fixture
def hall(linked):
    """A dispatcher's parts around one worker, which the test plays."""
    told = []
    core = Core(store=None, identity=Identity(1, (), ""), page=Page(1), tell=told.append)
    link, _ = linked(0, core.page)
    core.pool.add(link)
    attempts = Attempts(core)
    return SimpleNamespace(
        page=core.page,
        pool=core.pool,
        unrecorded=core.unrecorded,
        link=link,
        attempts=attempts,
        reader=Reader(core, attempts),
        told=told,
    )


def give(hall, task):
    hall.pool.put([task])
    hall.pool.hand_out()
    return hall.link.first


def enter(hall, key, started):
    """Say as a worker does that it runs an attempt."""
    hall.page.enter(0, *Running(*key, deadline=NEVER, started=started))


def end(hall, key, started, ended):
    """Say as a worker does that an attempt finished and returned nothing."""
    assert hall.link.ring.write(packed_end(*key, started, ended, None))
    hall.reader.collect(hall.link)


def test_the_start_of_a_short_task_is_recorded_with_its_end(hall):
    """G6: one change that is two events, each with its own time."""
    task = claimed(1)._replace(time=claimed(1).time - timedelta(hours=1))
    holding = give(hall, task)
    now = uptime()
    end(hall, holding.key, now - 0.010, now - 0.002)
    [change] = hall.unrecorded.take()
    assert (change.event, change.instance) == (Event.FINISH, 1)
    assert (change.time - change.started).total_seconds() == pytest.approx(0.008, abs=0.001)
    assert abs(change.time.timestamp() - time.time()) < 5
    assert not hall.link.assigned


def test_who_was_paused_has_gone_on_before_it_ended(hall):
    """G6: that the supervisor has let it go on may be heard of only after its end."""
    holding = give(hall, claimed(1))
    now = uptime()
    enter(hall, holding.key, now - 1)
    hall.reader.look(hall.link)
    hall.attempts.pausing.begun(hall.link, holding.key, time.time(), 0, is_frozen=True)
    end(hall, holding.key, now - 1, uptime())
    hall.attempts.pausing.ended(hall.link, holding.key, time.time())
    changes = []
    while batch := hall.unrecorded.take():
        changes += batch
        hall.unrecorded.acknowledge()
    events = [Event.START, Event.PAUSE, Event.RESUME, Event.FINISH]
    assert [change.event for change in changes] == events
    assert [change.time for change in changes] == sorted(change.time for change in changes)


def test_what_was_let_go_of_goes_on_all_the_same(hall):
    """Its worker had the right to start it already, and may not have begun.

    G3: it is killed when it begins. G4: if it ends, the store refuses it, and keeps the refusal.
    """
    holding = give(hall, claimed(1))
    assert hall.link.tokens.take(holding.serial)
    hall.attempts.reconcile({})
    hall.told.clear()
    hall.reader.look(hall.link)
    assert hall.told == []
    enter(hall, holding.key, uptime())
    hall.reader.look(hall.link)
    [message] = hall.told
    assert isinstance(message, Kill)
    assert message[:3] == (0, 100, holding.key)
    end(hall, holding.key, uptime(), uptime())
    last = hall.unrecorded.take()[-1]
    assert (last.event, last.instance) == (Event.FINISH, 1)
    assert hall.unrecorded.is_doubtful(last)


def test_who_has_just_ended_is_not_killed(hall):
    """The page may show for a moment what the ring has told already."""
    holding = give(hall, claimed(1))
    enter(hall, holding.key, uptime())
    end(hall, holding.key, uptime(), uptime())
    hall.reader.look(hall.link)
    assert hall.told == []


# Handing out: who gets what, what is handed out ahead, what is taken back


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    for module in (pool_module, hand_out):
        monkeypatch.setattr(module, "uptime", clock.monotonic)
    monkeypatch.setattr(stuck_workers, "time", clock)
    return clock


@pytest.fixture
def pool(clock, linked):
    pool, page = Pool(), Page(2)
    pool.workers = []
    for slot in range(2):
        link, theirs = linked(slot, page)
        pool.add(link)
        pool.workers.append(theirs)
    return pool


def numbers(link):
    return [instance for instance, _ in link.assigned]


def start(link, clock):
    """Let a worker start the first task in its hand."""
    assert link.tokens.take(link.first.serial)
    link.first.started = clock.now


def learn(pool, clock, type, seconds):
    """Let the pool see one task of this Type and run time."""
    pool.put([claimed(10_000, type)])
    pool.hand_out()
    [link] = [link for link in pool.links.values() if link.assigned]
    start(link, clock)
    list(pool.workers[link.slot].drain())
    clock.now += seconds
    pool.ended(link, (10_000, 1), seconds)


def test_short_types_are_handed_out_ahead(pool, clock):
    """Nothing is behind more than what is expected to be done soon."""
    learn(pool, clock, "short", 0.010)
    assert pool.wanted() == 2 * 5
    pool.put([claimed(n) for n in range(16)])
    pool.hand_out()
    assert [len(numbers(link)) for link in pool.links.values()] == [5, 5]
    assert len(pool.waiting) == 6


def test_what_lies_unstarted_goes_to_a_worker_that_is_free(pool, clock):
    """No task waits for long behind a running one while another worker is idle (G9, G15)."""
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(n) for n in range(40)])
    pool.hand_out()
    first, second = pool.links.values()
    begun = numbers(first)
    assert abs(len(begun) - len(numbers(second))) < 10
    start(first, clock)
    while second.assigned:
        start(second, clock)
        pool.ended(second, second.first.key, 0.001)
    pool.take_back()
    assert numbers(first) == begun
    clock.now += 1.1 * STEAL_AFTER
    pool.take_back()
    assert numbers(first) == begun[:1]
    assert [h.claimed.instance for h in pool.waiting] == begun[1:]
    pool.hand_out()
    assert numbers(second)[:2] == begun[1:3]
    # Whoever was sent them first has no right to start them any more.
    assert not first.tokens.take(2)


def test_what_was_lost_before_runs_alone_and_after_its_start_is_recorded(pool, clock):
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(1, lost=1), claimed(2), claimed(3)])
    [reserved] = pool.hand_out()
    assert reserved.claimed.instance == 1
    first, second = pool.links.values()
    assert (numbers(first), numbers(second)) == ([], [2, 3])
    assert len(pool) == 3
    pool.release_reserved((1, 1))
    assert numbers(first) == [1]
    pool.put([claimed(4)])
    pool.hand_out()
    assert numbers(second) == [2, 3, 4]


# Workers that start nothing of what they are given


@pytest.fixture
def stuck(pool):
    """Whoever looks for stuck workers among one; ``later(seconds)`` looks after so many seconds."""
    page, killed = Page(2), []
    watcher = StuckWorkers(pool, page, lambda link, key, why: killed.append((link.slot, key)))
    pool.remove(1)
    return SimpleNamespace(turn=watcher.turn, page=page, killed=killed, link=pool.links[0])


def test_one_that_did_not_come_to_clear_what_has_ended_is_stuck_too(pool, stuck, clock):
    """G5: it was stopped between telling of an end and taking it from the page."""
    stuck.page.enter(0, *Running(9, 1, deadline=NEVER, started=0.0))
    pool.put([claimed(1)])
    pool.hand_out()
    for seconds in (0, TAKE_BACK_AFTER):
        clock.now += seconds
        stuck.turn()
    assert [holding.key for holding in pool.waiting] == [(1, 1)]
    for seconds in (0, KILL_AFTER):
        clock.now += seconds
        stuck.turn()
    assert stuck.killed == [(0, (9, 1))]


def test_one_that_goes_on_is_not_stuck(pool, stuck, clock):
    """Each time that it is looked at, it is about to start another.

    G6: one that retires gets nothing more, or a start would be recorded that never was.
    """
    for number in range(20):
        pool.put([claimed(number)])
        pool.hand_out()
        clock.now += TAKE_BACK_AFTER * 0.9
        stuck.turn()
        start(stuck.link, clock)
        pool.ended(stuck.link, stuck.link.first.key, 0.1)
    assert stuck.killed == []
    assert not stuck.link.is_stuck
    stuck.link.is_retiring = True
    pool.put([claimed(20, lost=1)])
    assert pool.hand_out() == []
    assert (pool.has_free(), pool.wanted()) == (False, 0)


# Workers are not heard while too much waits to be recorded


@pytest.fixture
def intake(linked):
    """An intake from one worker; the test says how much waits, and whose entries are locked."""
    with selectors.DefaultSelector() as selector:
        heard, running, full = [], {}, set()
        unrecorded = SimpleNamespace(pending=0, has_aside=True, overfull=lambda most: full)
        reader = SimpleNamespace(collect=heard.append, running=running.get)
        intake = Intake(selector, unrecorded, reader)
        page = Page(2)
        link, worker = linked(0, page)
        link.is_stuck = True
        intake.add(link)
        worker.send(Look())

        def turn(pending=0):
            """Let the intake look while so many entries wait; returns whom it has heard."""
            heard.clear()
            unrecorded.pending = pending
            intake.turn()
            for key, _ in selector.select(0):
                key.data()
            return heard

        yield SimpleNamespace(
            turn=turn,
            add=intake.add,
            remove=intake.remove,
            listens_to=lambda: set(selector.get_map()),
            link=link,
            heard=heard,
            running=running,
            full=full,
            page=page,
        )


def test_backpressure(intake):
    """G5. G1: what a worker said before it died is heard in any case."""
    assert intake.turn() == [intake.link]
    assert not intake.link.is_stuck
    assert intake.link.ring.write(b"ended")
    assert intake.turn(pending=MOST) == []
    assert intake.turn(pending=AGAIN + 1) == []
    assert len(intake.turn(pending=AGAIN)) == 2  # by its ring, and by its channel
    assert intake.turn(pending=MOST) == []
    intake.remove(intake.link)
    assert intake.heard == [intake.link]
    assert not intake.listens_to()
    intake.turn(pending=MOST)


def test_only_the_worker_of_an_attempt_behind_a_lock_waits(intake, linked):
    """G9: an attempt that talks without end, and whose rows somebody has locked."""
    other, _ = linked(1, intake.page)
    intake.add(other)
    intake.running[intake.link] = 7, 1
    intake.full.add((7, 1))
    assert intake.turn() == []
    assert intake.listens_to() == {other.channel.fileno()}
    # Its end may come behind what it has said.
    intake.running.clear()
    assert intake.turn() == [intake.link]


# What is not recorded yet: order, batches, and what is forgotten


def move(instance, event=Event.START):
    return Move(event=event, instance=instance, attempt=1)


def test_batches_are_of_one_kind_and_in_order():
    unrecorded = UnrecordedChanges()
    message = Message(time=datetime.now(UTC), level=20, text="hello")
    note = Note(instance=1, attempt=1, messages=(message,))
    unrecorded.add(move(1), move(2), note, move(1, Event.FINISH))
    assert unrecorded.take() == [move(1), move(2)]
    assert unrecorded.take() == []
    unrecorded.acknowledge()
    assert unrecorded.take() == [note]
    unrecorded.give_back()
    assert unrecorded.take() == [replace(note, again=True)]
    unrecorded.acknowledge()
    assert unrecorded.take() == [move(1, Event.FINISH)]
    unrecorded.acknowledge()
    assert len(unrecorded) == 0


def test_what_is_recorded_is_forgotten_and_what_is_gone_is_told():
    """A start whose acknowledgement got lost is not written twice (G6); see G4 for the other."""
    unrecorded = UnrecordedChanges()
    unrecorded.add(move(1), move(1, Event.FINISH), move(2), move(3, Event.FINISH))
    assert unrecorded.keys() == {(1, 1), (2, 1), (3, 1)}
    unrecorded.keep({(1, 1): State.RUNNING, (2, 1): State.SCHEDULED})
    assert unrecorded.take() == [move(1, Event.FINISH), move(2), move(3, Event.FINISH)]
    assert [unrecorded.is_doubtful(move(n)) for n in (1, 2, 3)] == [False, False, True]
    unrecorded.acknowledge()
    assert not unrecorded.is_doubtful(move(3))


def test_what_cannot_be_written_is_tried_in_smaller_pieces():
    """G11: a batch that takes longer than a statement may is not tried for ever."""
    unrecorded = UnrecordedChanges()
    unrecorded.add(*(move(n) for n in range(BATCH)))
    sizes = []
    for _ in range(3):
        sizes.append(len(unrecorded.take()))
        unrecorded.give_back()
        unrecorded.shrink()
    assert sizes == [BATCH, BATCH // 2, BATCH // 4]
    while unrecorded.take():
        unrecorded.acknowledge()
    unrecorded.add(*(move(n) for n in range(BATCH)))
    assert len(unrecorded.take()) == BATCH


def test_an_overdue_report_of_a_downstream_keeps_no_processor_busy():
    """It waits for the thread that records, or for the database to be back."""
    known = Downstreams()
    known.ended(claimed(1, "downstream.call"), Outcome(Kind.UNAVAILABLE, "503"))
    assert known.due() == ["relay"]
    assert known.pause(5.0) == 5.0
    known.take("relay")
    known.told("relay", None)
    assert known.pause(5.0) <= SOONEST
