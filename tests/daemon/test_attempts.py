"""What a dispatcher makes of what its workers do: starts, ends, and what must not go on."""

import logging
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from atp.daemon.dispatcher.core import Core
from atp.daemon.membership.identity import Identity
from atp.daemon.pool.attempts import Attempts
from atp.daemon.pool.pool import LOOK_AFTER
from atp.daemon.pool.reader import Reader
from atp.daemon.pool.worker_link import WorkerLink
from atp.daemon.shared.channel import Channel
from atp.daemon.shared.messages import Kill, Paused, Resumed
from atp.daemon.shared.packing import packed_end
from atp.daemon.shared.running_page import NEVER, Page, Running
from atp.daemon.shared.tokens import Tokens
from atp.daemon.system.processes import uptime
from atp.states import Event
from tests.helpers import wait_for
from tests.samples import claimed


@pytest.fixture
def hall():
    """A dispatcher's parts around one worker, which the test plays."""
    told = []
    core = Core(store=None, identity=Identity(1, (), ""), page=Page(1), tell=told.append)
    ours, theirs = Channel.pair()
    link = WorkerLink(0, 100, ours, Tokens.pipe(), core.page.ring(0))
    core.pool.add(link)
    attempts = Attempts(core)
    yield SimpleNamespace(
        page=core.page,
        pool=core.pool,
        unrecorded=core.unrecorded,
        link=link,
        attempts=attempts,
        reader=Reader(core, attempts),
        told=told,
        worker=theirs,
    )
    link.close()
    theirs.close()


def give(hall, task):
    hall.pool.put([task])
    hall.pool.hand_out()
    return hall.link.first


def end(hall, key, started, ended):
    """Say as a worker does that an attempt finished and returned nothing."""
    assert hall.link.ring.write(packed_end(*key, started, ended, None))


def recorded(hall):
    return [(change.event, change.started is not None) for change in hall.unrecorded.take()]


def test_the_start_of_a_short_task_is_recorded_with_its_end(hall):
    """G6: one change that is two events, each with its own time."""
    task = claimed(1)._replace(time=claimed(1).time - timedelta(hours=1))
    holding = give(hall, task)
    now = uptime()
    end(hall, holding.key, now - 0.010, now - 0.002)
    hall.reader.collect(hall.link)
    [change] = hall.unrecorded.take()
    assert (change.event, change.instance) == (Event.FINISH, 1)
    assert (change.time - change.started).total_seconds() == pytest.approx(0.008, abs=0.001)
    assert abs(change.time.timestamp() - time.time()) < 5
    assert not hall.link.assigned


def test_what_is_told_of_its_run_time_is_without_its_pauses(hall, caplog):
    holding = give(hall, claimed(1))
    now = uptime()
    hall.page.enter(0, *Running(*holding.key, deadline=NEVER, started=now - 9))
    hall.worker.send(Paused(holding.key, time.time(), 1, "", is_own=False))
    wait_for(lambda: hall.reader.collect(hall.link) or holding.pause)
    holding.pause.since = now - 8
    hall.worker.send(Resumed(holding.key, time.time()))
    wait_for(lambda: hall.reader.collect(hall.link) or not holding.pause)
    end(hall, holding.key, now - 9, now)
    with caplog.at_level(logging.DEBUG, "atp"):
        hall.reader.collect(hall.link)
    [line] = [each.getMessage() for each in caplog.records if "finished after" in each.getMessage()]
    assert float(line.split()[-2]) == pytest.approx(1.0, abs=0.5)


def test_who_was_paused_has_gone_on_before_it_ended(hall):
    """G6: that the supervisor has let it go on may be heard of only after its end."""
    holding = give(hall, claimed(1))
    now = uptime()
    hall.page.enter(0, *Running(*holding.key, deadline=NEVER, started=now - 1))
    hall.reader.look(hall.link)
    hall.attempts.pausing.begun(hall.link, holding.key, time.time(), 0, is_frozen=True)
    end(hall, holding.key, now - 1, uptime())
    hall.reader.collect(hall.link)
    hall.attempts.pausing.ended(hall.link, holding.key, time.time())
    changes = []
    while batch := hall.unrecorded.take():
        changes += batch
        hall.unrecorded.acknowledge()
    assert [change.event for change in changes] == [
        Event.START,
        Event.PAUSE,
        Event.RESUME,
        Event.FINISH,
    ]
    assert [change.time for change in changes] == sorted(change.time for change in changes)


def test_the_start_of_a_longer_one_is_recorded_by_itself(hall, monkeypatch):
    """And once (G6)."""
    clock = SimpleNamespace(now=uptime())
    monkeypatch.setattr("atp.daemon.pool.reader.uptime", lambda: clock.now)
    holding = give(hall, claimed(1))
    hall.page.enter(0, *Running(*holding.key, deadline=NEVER, started=clock.now))
    hall.reader.look(hall.link)
    assert recorded(hall) == []
    clock.now += 2 * LOOK_AFTER
    hall.reader.look(hall.link)
    hall.reader.look(hall.link)
    assert recorded(hall) == [(Event.START, False)]
    hall.unrecorded.acknowledge()
    end(hall, holding.key, holding.started, uptime())
    hall.reader.collect(hall.link)
    assert recorded(hall) == [(Event.FINISH, False)]


def test_what_was_let_go_of_is_killed_when_it_begins_all_the_same(hall):
    """G3: its worker had the right to start it already, and may not have begun."""
    holding = give(hall, claimed(1))
    assert hall.link.tokens.take(holding.serial)
    hall.attempts.reconcile({})
    hall.told.clear()
    hall.reader.look(hall.link)
    assert hall.told == []
    hall.page.enter(0, *Running(*holding.key, deadline=NEVER, started=uptime()))
    hall.reader.look(hall.link)
    [message] = hall.told
    assert isinstance(message, Kill)
    assert message[:3] == (0, 100, holding.key)


def test_what_was_let_go_of_and_ends_all_the_same_is_told(hall):
    """G4: the store refuses it, and keeps the refusal."""
    holding = give(hall, claimed(1))
    assert hall.link.tokens.take(holding.serial)
    hall.attempts.reconcile({})
    end(hall, holding.key, uptime(), uptime())
    hall.reader.collect(hall.link)
    [change] = hall.unrecorded.take()
    assert (change.event, change.instance) == (Event.FINISH, 1)
    assert hall.unrecorded.is_doubtful(change)


def test_what_was_let_go_of_and_not_taken_up_costs_no_worker(hall):
    holding = give(hall, claimed(1))
    hall.attempts.reconcile({})
    assert hall.told == []
    assert not hall.link.tokens.take(holding.serial)
    assert len(hall.pool) == 0


def test_who_has_just_ended_is_not_killed(hall):
    """The page may show for a moment what the ring has told already."""
    holding = give(hall, claimed(1))
    hall.page.enter(0, *Running(*holding.key, deadline=NEVER, started=uptime()))
    end(hall, holding.key, uptime(), uptime())
    hall.reader.collect(hall.link)
    hall.reader.look(hall.link)
    assert hall.told == []
