"""What a dispatcher makes of what its workers do: hands, starts, ends, and what must not go on."""

import logging
import queue
import selectors
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connections

from atp import messages
from atp.commands import PAUSE, RESUME
from atp.conf import settings as own
from atp.models import Kind
from atp.states import Event, State
from atp.store import get_store
from atp.store.values import Message, Move, ProgressUpdate
from tests.helpers import DEADLINE
from tests.samples import claimed

from ..nonsense import tells
from . import inside


@pytest.fixture
def linked():
    """Return a function that makes the link to a worker, and the channel of that worker."""
    made = []

    def link(slot, page):
        ours, theirs = inside.Channel.pair()
        link = inside.WorkerLink(slot, 100 + slot, ours, inside.Tokens.pipe(), page.ring(slot))
        made.extend([link, theirs])
        return link, theirs

    yield link
    for each in made:
        each.close()


@pytest.fixture
def hall(linked):
    """A dispatcher's parts around one worker, which the test plays."""
    told = []
    core = inside.Core(
        store=None,
        identity=inside.Identity(1, (), ""),
        page=inside.Page(1),
        tell=told.append,
        pool=(pool := inside.Pool()),
        capacity=inside.Capacity({}, {}, pool),
    )
    link, channel = linked(0, core.page)
    core.pool.add(link)
    attempts = inside.Attempts(core)
    return SimpleNamespace(
        core=core,
        page=core.page,
        pool=core.pool,
        unrecorded=core.unrecorded,
        link=link,
        channel=channel,
        attempts=attempts,
        reader=inside.Reader(core, attempts),
        told=told,
    )


def give(hall, task):
    hall.pool.put([task])
    hall.pool.hand_out()
    return hall.link.first


def enter(hall, key, started):
    """Say as a worker does that it runs an attempt."""
    hall.page.enter(0, *inside.Running(*key, deadline=inside.NEVER, started=started))


def die(hall):
    """Say as the supervisor does that the worker is dead."""
    with selectors.DefaultSelector() as selector:
        intake = inside.Intake(selector, hall.unrecorded, hall.reader)
        changes = inside.WorkerChanges(hall.core, hall.attempts, intake)
        died = inside.WorkerDied(0, hall.link.pid, "it died", "", hall.page.read(0), 0)
        changes.on_message[inside.WorkerDied](*died)


def end(hall, key, started, ended):
    """Say as a worker does that an attempt finished and returned nothing."""
    assert hall.link.ring.write(inside.packed_end(*key, started, ended, None))
    hall.reader.collect(hall.link)


def recorded(hall):
    """Return all that waits to be recorded, as if it was written."""
    changes = []
    while batch := hall.unrecorded.take():
        changes += batch
        hall.unrecorded.acknowledge()
    return changes


def test_start_and_end_of_a_short_task_are_one_change(hall):
    """G6: each with its own time."""
    task = claimed(1, time=claimed(1).time - timedelta(hours=1))
    attempt = give(hall, task)
    now = inside.uptime()
    end(hall, attempt.key, now - 0.010, now - 0.002)
    [change] = hall.unrecorded.take()
    assert (change.event, change.instance) == (Event.FINISH, 1)
    assert (change.time - change.started).total_seconds() == pytest.approx(0.008, abs=0.001)
    assert abs(change.time.timestamp() - time.time()) < 5
    assert not hall.link.assigned


def test_paused_attempt_is_resumed_in_the_log_before_its_end(hall):
    """G6: although the supervisor may tell of it only after the end."""
    attempt = give(hall, claimed(1))
    now = inside.uptime()
    enter(hall, attempt.key, now - 1)
    hall.reader.look(hall.link)
    hall.attempts.pausing.begun(hall.link, attempt.key, time.time(), 0, is_frozen=True)
    end(hall, attempt.key, now - 1, inside.uptime())
    hall.attempts.pausing.ended(hall.link, attempt.key, time.time())
    changes = recorded(hall)
    events = [Event.START, Event.PAUSE, Event.RESUME, Event.FINISH]
    assert [change.event for change in changes] == events
    assert [change.time for change in changes] == sorted(change.time for change in changes)


def test_lost_attempt_is_killed_if_it_begins_and_its_end_is_refused(hall):
    """G3, G4: its worker already had the token when the Task was taken away."""
    attempt = give(hall, claimed(1))
    assert hall.link.tokens.take(attempt.serial)
    hall.attempts.reconcile({})
    hall.told.clear()
    hall.reader.look(hall.link)
    assert hall.told == []
    enter(hall, attempt.key, inside.uptime())
    hall.reader.look(hall.link)
    [message] = hall.told
    assert isinstance(message, inside.Kill)
    assert message[:3] == (0, 100, attempt.key)
    end(hall, attempt.key, inside.uptime(), inside.uptime())
    last = hall.unrecorded.take()[-1]
    assert (last.event, last.instance) == (Event.FINISH, 1)
    assert hall.unrecorded.is_doubtful(last)


@pytest.mark.parametrize("dies", [True, False])
def test_start_that_nobody_saw_has_its_own_time(hall, dies):
    """G6: the dispatcher may not run while an attempt starts and dies, or logs a line and ends."""
    attempt = give(hall, claimed(1, time=claimed(1).time - timedelta(hours=1)))
    now, began = inside.uptime(), time.time() - 10
    if dies:
        enter(hall, attempt.key, now - 10)
        die(hall)
    else:
        hall.channel.send(inside.Logged(attempt.key, time.time() - 1, logging.INFO, "almost done"))
        end(hall, attempt.key, now - 10, now)
    start = recorded(hall)[0]
    assert start.event is Event.START
    assert start.time.timestamp() == pytest.approx(began, abs=1)


def test_log_says_once_that_an_attempt_in_a_loop_has_no_pause_and_no_stack(hall):
    """A process that does not declare the Type may ask for them."""
    attempt, _ = run_for(hall, 10)
    hall.link.loop = SimpleNamespace(number=0)
    for _ in range(2):
        hall.attempts.pausing.asked(attempt.key, PAUSE)
        hall.attempts.stacks.asked([attempt.key])
    start, *notes = recorded(hall)
    assert start.event is Event.START
    pause, stack = (message for note in notes for message in note.messages)
    assert tells(pause.text, messages.pause_refused(in_loop=True, host=""))
    # This kind of record is the answer for which the asker waits.
    assert (stack.kind, tells(stack.text, messages.stack_refused())) == (Kind.STACK, True)
    assert hall.told == []


def test_own_pause_of_an_attempt_on_an_engine_can_be_resumed_after_a_refused_pause(hall):
    attempt, _ = run_for(hall, 10)
    hall.link.host = "node-1"
    hall.attempts.pausing.asked(attempt.key, PAUSE)
    hall.attempts.pausing.begun(hall.link, attempt.key, time.time(), 0, is_own=True)
    hall.attempts.pausing.asked(attempt.key, RESUME)
    assert not attempt.pause.is_wanted


def test_attempt_that_has_just_ended_is_not_killed(hall):
    """The shared memory may still show it for a moment."""
    attempt = give(hall, claimed(1))
    enter(hall, attempt.key, inside.uptime())
    end(hall, attempt.key, inside.uptime(), inside.uptime())
    hall.reader.look(hall.link)
    assert hall.told == []


# The usage of the workers


def run_for(hall, seconds):
    """Have the worker run an attempt that has started so long ago; returns attempt and start."""
    attempt = give(hall, claimed(1))
    started = inside.uptime() - seconds
    enter(hall, attempt.key, started)
    hall.reader.look(hall.link)
    return attempt, started


def test_attempt_counts_in_each_period_in_which_it_runs(hall):
    """And as ended in the last one."""
    attempt, started = run_for(hall, 10)
    first = hall.attempts.usage.close()
    ended = inside.uptime()
    end(hall, attempt.key, started, ended)
    last = hall.attempts.usage.close()
    assert first.busy_us == pytest.approx(10e6, abs=1e6)
    assert first.busy_us + last.busy_us == pytest.approx(1e6 * (ended - started), abs=2)
    assert (first.ended, last.ended) == (0, 1)


def test_paused_attempt_does_not_count_as_work(hall):
    attempt, started = run_for(hall, 10)
    hall.attempts.pausing.begun(hall.link, attempt.key, time.time(), 0)
    attempt.pause.since -= 8
    assert hall.attempts.usage.close().busy_us == pytest.approx(2e6, abs=1e6)
    end(hall, attempt.key, started, inside.uptime())
    assert hall.attempts.usage.close().busy_us == pytest.approx(0, abs=1e6)


def test_attempt_whose_worker_dies_counts_as_work(hall):
    run_for(hall, 10)
    die(hall)
    found = hall.attempts.usage.close()
    assert (found.busy_us, found.ended) == (pytest.approx(10e6, abs=1e6), 1)


def test_period_of_usage_ends_with_its_minute(hall, monkeypatch):
    """It begins where the last one ended, on the clock of the database."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(inside.pool_statistics, "uptime", lambda: clock.now)
    monkeypatch.setattr(inside.pool_statistics.time, "time", lambda: clock.now)
    hall.core.identity.offset = timedelta(seconds=40)
    usage = inside.UsageMeter(hall.pool, hall.core.identity, 3)
    for seconds, is_over in ((39.5, False), (0.5, True)):
        clock.now += seconds
        assert usage.is_over() == is_over
    period = usage.close()
    assert (period.start.timestamp(), period.capacity_us) == (1020, 120e6)
    assert not usage.is_over()
    assert usage.close().start.timestamp() == 1080


# Handing out: who gets what, what is handed out ahead, what is taken back


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    for module in (inside.pool, inside.hand_out):
        monkeypatch.setattr(module, "uptime", clock.monotonic)
    monkeypatch.setattr(inside.stuck_workers, "time", clock)
    return clock


@pytest.fixture
def pool(clock, linked):
    pool, page = inside.Pool(), inside.Page(2)
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


def test_short_tasks_are_handed_out_ahead(pool, clock):
    learn(pool, clock, "short", 0.010)
    assert pool.room()[0].limit == 2 * 5
    pool.put([claimed(n) for n in range(16)])
    pool.hand_out()
    assert [len(numbers(link)) for link in pool.links.values()] == [5, 5]
    assert pool.count_waiting() == 6


def test_task_behind_a_running_one_goes_to_an_idle_worker(pool, clock):
    """G9, G15."""
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
    clock.now += 1.1 * inside.STEAL_AFTER
    pool.take_back()
    assert numbers(first) == begun[:1]
    assert [h.instance for h in pool.waiting()] == begun[1:]
    pool.hand_out()
    assert numbers(second)[:2] == begun[1:3]
    # Whoever was sent them first has no right to start them any more.
    assert not first.tokens.take(2)


def test_task_that_was_lost_before_runs_alone_after_its_start_is_recorded(pool, clock):
    learn(pool, clock, "short", 0.001)
    pool.put([claimed(1, lost=1), claimed(2), claimed(3)])
    [reserved] = pool.hand_out()
    assert reserved.instance == 1
    first, second = pool.links.values()
    assert (numbers(first), numbers(second)) == ([], [2, 3])
    assert len(pool) == 3
    pool.release_reserved((1, 1))
    assert numbers(first) == [1]
    pool.put([claimed(4)])
    pool.hand_out()
    assert numbers(second) == [2, 3, 4]


# The places of a loop


@pytest.fixture
def loop(clock, linked):
    """A pool with a loop of ten places, and ``ends(count, interval)`` of what the loop did."""
    pool, page = inside.Pool(concurrency={"short": 10}), inside.Page(10, loops=1)
    for slot in range(10):
        link, theirs = linked(slot, page)
        link.pid = 100
        pool.add(link, loop=0)
        pool.workers = [*getattr(pool, "workers", []), theirs]

    def ends(count, interval, ran):
        """Let the loop do as many tasks, which ran for so many seconds each."""
        pool.put([claimed(number) for number in range(count)])
        while pool.count_waiting():
            pool.hand_out()
            for link in pool.links.values():
                while link.assigned:
                    clock.now += interval
                    key = link.first.key
                    pool.ended(link, key, ran)
                    link.loop.ended(clock.now - ran, clock.now)
        pool.look_at_loops(page)

    return SimpleNamespace(pool=pool, ends=ends)


def held(pool):
    return [len(link.assigned) for link in pool.links.values()]


def test_loop_has_no_more_ahead_than_it_does_in_a_while(loop):
    """However short a task is by itself: the places of a loop take turns."""
    loop.ends(100, interval=0.001, ran=0.0001)
    assert loop.pool.room()[1].limit == 10 + 50
    loop.pool.put([claimed(number) for number in range(10 + 50)])
    loop.pool.hand_out()
    assert sum(held(loop.pool)) == 10 + 50
    assert loop.pool.room()[1].limit == 0


def test_tasks_that_wait_spread_over_the_places_of_a_loop(loop):
    loop.ends(100, interval=0.001, ran=0.01)
    loop.pool.put([claimed(number) for number in range(10)])
    loop.pool.hand_out()
    assert held(loop.pool) == [1] * 10


def test_loop_gets_the_tasks_of_all_places_through_one_channel(loop):
    loop.pool.put([claimed(number) for number in range(10)])
    loop.pool.hand_out()
    [[*tasks]] = loop.pool.workers[0].drain()
    assert [slot for slot, _ in tasks] == [*range(10)]
    assert not any([*worker.drain()] for worker in loop.pool.workers[1:])


# Workers that start nothing of what they are given


@pytest.fixture
def stuck(pool):
    """Whoever looks for stuck workers among one; ``later(seconds)`` looks after so many seconds."""
    page, killed = inside.Page(2), []
    watcher = inside.StuckWorkers(
        pool, page, lambda link, key, why: killed.append((link.slot, key))
    )
    pool.remove(1)
    return SimpleNamespace(turn=watcher.turn, page=page, killed=killed, link=pool.links[0])


def test_worker_that_stops_after_an_end_is_stuck(pool, stuck, clock):
    """G5: its next tasks are taken back, and then it is killed."""
    stuck.page.enter(0, *inside.Running(9, 1, deadline=inside.NEVER, started=0.0))
    pool.put([claimed(1)])
    pool.hand_out()
    for seconds in (0, inside.TAKE_BACK_AFTER):
        clock.now += seconds
        stuck.turn()
    assert [attempt.key for attempt in pool.waiting()] == [(1, 1)]
    for seconds in (0, inside.KILL_AFTER):
        clock.now += seconds
        stuck.turn()
    assert stuck.killed == [(0, (9, 1))]


def test_worker_that_makes_progress_is_not_stuck(pool, stuck, clock):
    """G6: and a worker that retires gets nothing more."""
    for number in range(20):
        pool.put([claimed(number)])
        pool.hand_out()
        clock.now += inside.TAKE_BACK_AFTER * 0.9
        stuck.turn()
        start(stuck.link, clock)
        pool.ended(stuck.link, stuck.link.first.key, 0.1)
    assert stuck.killed == []
    assert not stuck.link.is_stuck
    stuck.link.is_retiring = True
    pool.put([claimed(20, lost=1)])
    assert pool.hand_out() == []
    assert (pool.is_idle(), pool.room()[0].limit) == (False, 0)


# Workers are not heard while too much waits to be recorded


@pytest.fixture
def intake(linked):
    """An intake from one worker; the test says how much waits, and whose entries are locked."""
    with selectors.DefaultSelector() as selector:
        heard, running, full = [], {}, set()
        unrecorded = SimpleNamespace(pending=0, has_aside=True, overfull=lambda most: full)
        reader = SimpleNamespace(
            collect=heard.append,
            collect_ends=lambda until, told: heard.extend(until),
            running=running.get,
        )
        intake = inside.Intake(selector, unrecorded, reader)
        page = inside.Page(2)
        link, worker = linked(0, page)
        link.is_stuck = True
        intake.add(link)
        worker.send(inside.Look())

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


def test_workers_are_not_read_while_too_much_is_unrecorded(intake):
    """G5. G1: what a worker said before its death is read in any case."""
    assert intake.turn() == [intake.link]
    assert not intake.link.is_stuck
    assert intake.link.ring.write(b"ended")
    assert intake.turn(pending=inside.MOST) == []
    assert intake.turn(pending=inside.AGAIN + 1) == []
    assert len(intake.turn(pending=inside.AGAIN)) == 2  # by its ring, and by its channel
    assert intake.turn(pending=inside.MOST) == []
    intake.remove(intake.link, None)
    assert intake.heard == [intake.link]
    assert not intake.listens_to()
    intake.turn(pending=inside.MOST)


def test_attempt_behind_a_lock_stops_only_its_own_worker(intake, linked):
    """G9."""
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
    unrecorded = inside.UnrecordedChanges()
    message = Message(time=datetime.now(UTC), level=20, text="hello")
    note = ProgressUpdate(instance=1, attempt=1, messages=(message,))
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


def test_recorded_start_is_not_written_twice_and_a_lost_end_is_doubtful():
    """G4, G6."""
    unrecorded = inside.UnrecordedChanges()
    unrecorded.add(move(1), move(1, Event.FINISH), move(2), move(3, Event.FINISH))
    assert unrecorded.keys() == {(1, 1), (2, 1), (3, 1)}
    unrecorded.keep({(1, 1): State.RUNNING, (2, 1): State.SCHEDULED})
    assert unrecorded.take() == [move(1, Event.FINISH), move(2), move(3, Event.FINISH)]
    assert [unrecorded.is_doubtful(move(n)) for n in (1, 2, 3)] == [False, False, True]
    unrecorded.acknowledge()
    assert not unrecorded.is_doubtful(move(3))


def test_batch_that_fails_is_tried_in_smaller_pieces():
    """G11: it may take longer than a statement is allowed to."""
    unrecorded = inside.UnrecordedChanges()
    unrecorded.add(*(move(n) for n in range(inside.BATCH)))
    sizes = []
    for _ in range(3):
        sizes.append(len(unrecorded.take()))
        unrecorded.give_back()
        unrecorded.shrink()
    assert sizes == [inside.BATCH, inside.BATCH // 2, inside.BATCH // 4]
    while unrecorded.take():
        unrecorded.acknowledge()
    unrecorded.add(*(move(n) for n in range(inside.BATCH)))
    assert len(unrecorded.take()) == inside.BATCH


def test_overdue_report_of_a_downstream_is_no_busy_loop():
    known = inside.Downstreams()
    known.ended(claimed(1, "downstream.call"), inside.Outcome(inside.Kind.UNAVAILABLE, "503"))
    assert known.due() == ["relay"]
    assert known.pause(5.0) == 5.0
    known.take("relay")
    known.told("relay", None)
    assert known.pause(5.0) <= inside.SOONEST


# When a daemon scans the queue, what it hears meanwhile, and what its maintenance jobs do


@pytest.fixture
def claiming():
    """Claiming as it is, beside maintenance jobs as the test says; claims find nothing."""
    queue_state = inside.QueueState()
    queue_state.call()
    made = SimpleNamespace(
        claims=0, queue=queue_state, while_claiming=lambda: None, run_job=lambda: False
    )

    def claim(*_, **__):
        made.claims += 1
        made.while_claiming()
        return []

    core = SimpleNamespace(
        store=SimpleNamespace(claims=SimpleNamespace(claim=claim, miss=lambda **_: 0)),
        identity=SimpleNamespace(holder="me", name="me", types=["a"], leased=True),
        pool=SimpleNamespace(
            room=lambda behind: (inside.Room(1, 1), inside.Room(0, 0)),
            is_low=lambda: True,
            concurrency={},
        ),
        capacity=inside.Capacity({}, {}, inside.Pool()),
        queue=queue_state,
        unrecorded=SimpleNamespace(pending=0),
        timers=SimpleNamespace(later=lambda name, seconds: None),
        caution=inside.Caution(),
        memory=inside.ClaimMemory(),
        misfits=inside.Misfits(),
        downstreams=inside.Downstreams(),
    )
    thread = SimpleNamespace(
        busy=False, submit=lambda doing, call, then: then(SimpleNamespace(value=call()))
    )
    jobs = SimpleNamespace(turn=lambda: made.run_job())
    user = inside.Claiming(core, thread, None, jobs)
    made.turn = lambda: user.turn(claims=True)
    return made


def test_maintenance_jobs_run_though_there_is_always_something_to_claim(claiming, monkeypatch):
    """G2, G3: the rescue of lost Tasks and the plan of schedules are among them."""
    now, runs = [inside.uptime()], [0.0]
    monkeypatch.setattr(inside.claiming, "uptime", lambda: now[0])

    def run_job():
        is_due = now[0] - runs[-1] >= 1
        runs.extend([now[0]] * is_due)
        return is_due

    claiming.run_job = run_job
    for _ in range(100):
        now[0] += 0.05
        claiming.queue.call()
        claiming.turn()
    assert 2 <= len(runs[1:]) <= 6
    assert claiming.claims + len(runs[1:]) == 100


def test_wake_up_during_a_claim_leads_to_another_claim(claiming):
    """G15: that claim may not have seen what has come meanwhile."""
    claiming.while_claiming = claiming.queue.call
    claiming.turn()
    claiming.while_claiming = lambda: None
    for _ in range(3):
        claiming.turn()
    assert claiming.claims == 2


# The thread that listens: when it may rest, and when somebody always has to hear


class Listener:
    """One that is told what to answer; ``waits`` are the time-outs that it was asked with."""

    is_deaf, channel = False, "a"

    def __init__(self, *, keeps):
        self.keeps = keeps
        self.waits, self.answers, self._handed = queue.Queue(), queue.Queue(), []

    def wait(self, timeout):
        self.waits.put(timeout)
        came, self._handed = self.answers.get()
        return came

    def handed(self):
        handed, self._handed = self._handed, []
        return handed

    def close(self):
        pass

    def answer(self, came, *handed):
        """Let the wait end that is under way; returns its time-out."""
        timeout = self.waits.get(timeout=DEADLINE)
        self.answers.put((came, [*handed]))
        return timeout


def listening(listener):
    """Return the thread, a queue of its rings, and that of what was handed over."""
    rings = queue.Queue()
    store = SimpleNamespace(listener=lambda: listener)
    ears = inside.Wakeups(store, lambda: rings.put(1), lambda: None)
    return ears, rings, ears.handed


def test_listener_reads_handed_tasks_once_more_before_it_rests():
    """G1."""
    listener = Listener(keeps=True)
    ears, rings, handed = listening(listener)
    ears.listen(False, may_be_handed=True)
    assert listener.waits.get(timeout=DEADLINE) == inside.PIECE
    ears.listen(False, may_be_handed=False)
    listener.answers.put((False, []))
    assert listener.answer(True, ("daemon", "task")) == 0
    assert handed.get(timeout=DEADLINE) == ("daemon", "task")
    ears.listen(True, may_be_handed=False)
    assert listener.answer(True) == inside.PIECE
    assert rings.get(timeout=DEADLINE)


def test_listener_that_waits_far_too_long_is_cut_off(monkeypatch):
    """G11, G15: its connection may have died in silence."""
    cut, now = [], [1000.0]
    monkeypatch.setattr(inside.wakeups, "shut_down", cut.append)
    monkeypatch.setattr(inside.wakeups, "uptime", lambda: now[0])
    listener = Listener(keeps=False)
    listener.link = "the link"
    ears, _, _ = listening(listener)
    ears.listen(True, may_be_handed=True)
    listener.waits.get(timeout=DEADLINE)
    for passed in (inside.PIECE, own.STATEMENT_TIMEOUT - 0.1, 0.2, 0.1):
        now[0] += passed
        ears.listen(True, may_be_handed=True)
    assert cut == ["the link"]


def test_database_thread_keeps_no_statements_with_debug(transactional_db, settings):
    """Django keeps the last 9,000 statements of a connection."""
    settings.DEBUG = True
    results = queue.SimpleQueue()
    thread = inside.DatabaseThread("tests", get_store(), results, lambda: None)

    def call():
        with connections[own.DATABASE].cursor() as cursor:
            cursor.execute("SELECT 1")
        try:
            return len(connections[own.DATABASE].queries_log)
        finally:
            connections[own.DATABASE].close()

    thread.submit("looking", call, print)
    _, result = results.get(timeout=DEADLINE)
    assert (result.error, result.value) == (None, 0)


# Jobs of which a call fails, or takes long


def test_uncounted_failures_are_logged_and_counted_later(caplog):
    core = SimpleNamespace(counters=SimpleNamespace(has_failures=False))
    with caplog.at_level("WARNING", logger="atp.daemon"):
        inside.CountFailures(core, None, None).failed(
            SimpleNamespace(error=OperationalError("away\n"))
        )
    assert [record.fact for record in caplog.records] == ["failures_not_counted"]
    assert core.counters.has_failures


def test_long_call_makes_a_portion_smaller_and_quick_calls_larger(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(inside.maintenance, "LONG_BY_VENDOR", {})
    monkeypatch.setattr(inside.maintenance, "uptime", lambda: clock[0])
    portion = inside.Portion(first=100, most=200)
    sizes = []
    for seconds in (2 * inside.LONG, inside.LONG / 10, inside.LONG / 10, inside.LONG / 10):
        with portion.measured():
            clock[0] += seconds
        sizes.append(portion.size)
    assert sizes == [50, 100, 200, 200]


def test_maintenance_that_is_cut_off_takes_less_the_next_time():
    """A rolled back call of the same size would be cut off again, for ever."""
    limits = []

    def cut(*, limit, **more):
        limits.append(limit)
        raise OperationalError("cut")

    core = SimpleNamespace(
        timers=inside.Timers(),
        queue=inside.QueueState(),
        identity=SimpleNamespace(name="x", current="x", holder="x"),
        store=SimpleNamespace(
            gates=SimpleNamespace(drop=cut),
            claims=SimpleNamespace(miss=cut),
            daemons=SimpleNamespace(sweep=cut),
            schedules=SimpleNamespace(plan=cut, trim=cut),
            statistics=SimpleNamespace(pay=lambda limit: cut(limit=limit)),
            errors=SimpleNamespace(count=cut),
        ),
    )
    for name in ("Drop", "Miss", "Plan", "Sweep", "Trim", "Count", "CountFailures"):
        limits.clear()
        cut_often = getattr(inside, name)(core, None, None)
        for _ in range(3):
            with pytest.raises(OperationalError):
                cut_often.call()()
        first = limits[0]
        assert limits == [first, first // 2, first // 4], name
