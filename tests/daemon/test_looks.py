"""When a daemon looks at the queue, what it hears meanwhile, and what its chores do."""

import queue
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connections

from atp.conf import settings as own
from atp.daemon.chores import chore
from atp.daemon.chores.chore import LONG, Chores, Portion
from atp.daemon.chores.counting import Count, CountFailures
from atp.daemon.chores.dropping import Drop
from atp.daemon.chores.missing import Miss
from atp.daemon.chores.planning import Plan
from atp.daemon.chores.sweeping import Sweep
from atp.daemon.chores.table import CLAIMING
from atp.daemon.chores.trimming import Trim
from atp.daemon.dispatcher import claiming, wakeups
from atp.daemon.dispatcher.caution import Caution
from atp.daemon.dispatcher.claiming import Claiming
from atp.daemon.dispatcher.database_thread import DatabaseThread
from atp.daemon.dispatcher.queue_state import QueueState
from atp.daemon.dispatcher.wakeups import PIECE, Wakeups
from atp.daemon.pool.downstreams import Downstreams
from atp.daemon.pool.misfits import Misfits
from atp.daemon.system.processes import uptime
from atp.daemon.system.timers import Timers
from atp.store import get_store
from atp.store.memory import ClaimMemory
from atp.store.values import Outlook
from tests.helpers import DEADLINE


class Daemon:
    """Claiming as it is, with everything around it as the test says: claims find nothing."""

    def __init__(self):
        self.claims = 0
        self.queue = QueueState()
        self.queue.call()
        self.while_claiming = self.before_outlook = lambda: None
        self.timers = SimpleNamespace(
            due=lambda name, every, early=0.0: name == "outlook",
            later=lambda name, seconds: None,
        )
        core = SimpleNamespace(
            store=SimpleNamespace(claim=self._claim, miss=lambda **_: 0, outlook=self._outlook),
            identity=SimpleNamespace(
                current="me", name="me", types=["a"], leased=True, may_sweep=True
            ),
            pool=SimpleNamespace(wanted=lambda behind: 1, is_low=lambda: True, free=lambda: 1),
            queue=self.queue,
            unrecorded=SimpleNamespace(pending=0),
            timers=self.timers,
            caution=Caution(),
            memory=ClaimMemory(),
            misfits=Misfits(),
            downstreams=Downstreams(),
        )
        orders = SimpleNamespace(hint=lambda request: None)
        thread = SimpleNamespace(busy=False, submit=self._submit)
        chores = Chores(thread, [entry(core, None, orders) for entry in CLAIMING])
        self.claiming = Claiming(core, thread, None, chores)

    def _submit(self, doing, call, then, failed=None):
        then(SimpleNamespace(value=call(), sent=uptime()))

    def _claim(self, *_, **__):
        self.claims += 1
        self.while_claiming()
        return []

    def _outlook(self, *_, **__):
        self.before_outlook()
        return Outlook()

    def turn(self):
        self.claiming.turn(claims=True)


@pytest.fixture
def daemon():
    return Daemon()


def test_chores_are_done_though_there_is_always_something_to_claim(daemon, monkeypatch):
    """G2, G3: the sweep and the plan of schedules are among them."""
    now, looks = [uptime()], []
    monkeypatch.setattr(claiming, "uptime", lambda: now[0])
    monkeypatch.setattr(daemon.timers, "due", lambda *_: now[0] - (looks or [0])[-1] >= 1)
    monkeypatch.setattr(daemon, "before_outlook", lambda: looks.append(now[0]))
    for _ in range(100):
        now[0] += 0.05
        daemon.queue.call()
        daemon.turn()
    assert 2 <= len(looks) <= 6
    assert daemon.claims + len(looks) == 100


def test_who_is_called_while_it_looks_looks_once_more(daemon):
    """G15: what has come meanwhile, that claim may not have seen."""
    daemon.while_claiming = daemon.queue.call
    daemon.turn()
    daemon.while_claiming = lambda: None
    for _ in range(3):
        daemon.turn()
    assert daemon.claims == 2


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
    """Return the thread, and queues of what it tells."""
    rings, handed = queue.Queue(), queue.Queue()
    store = SimpleNamespace(listener=lambda: listener)
    ears = Wakeups(store, lambda: rings.put(1), lambda *pair: handed.put(pair))
    return ears, rings, handed


def test_what_keeps_is_looked_for_once_more_before_it_rests():
    """G1: it may have been handed something until then."""
    listener = Listener(keeps=True)
    ears, rings, handed = listening(listener)
    ears.listen(False, may_be_handed=True)
    assert listener.waits.get(timeout=DEADLINE) == PIECE
    ears.listen(False, may_be_handed=False)
    listener.answers.put((False, []))
    assert listener.answer(True, ("daemon", "task")) == 0
    assert handed.get(timeout=DEADLINE) == ("daemon", "task")
    ears.listen(True, may_be_handed=False)
    assert listener.answer(True) == PIECE
    assert rings.get(timeout=DEADLINE)


def test_a_wait_that_takes_far_too_long_is_cut(monkeypatch):
    """G11, G15: its link may have died in silence, and Tasks be handed over through it."""
    cut, now = [], [1000.0]
    monkeypatch.setattr(wakeups, "shut_down", cut.append)
    monkeypatch.setattr(wakeups, "uptime", lambda: now[0])
    listener = Listener(keeps=False)
    listener.link = "the link"
    ears, _, _ = listening(listener)
    ears.listen(True, may_be_handed=True)
    listener.waits.get(timeout=DEADLINE)
    for passed in (PIECE, own.STATEMENT_TIMEOUT - 0.1, 0.2, 0.1):
        now[0] += passed
        ears.listen(True, may_be_handed=True)
    assert cut == ["the link"]


def test_nothing_is_kept_of_what_a_thread_executes(transactional_db, settings):
    """With DEBUG Django keeps the last 9,000 statements of a connection."""
    settings.DEBUG = True
    results = queue.SimpleQueue()
    thread = DatabaseThread("tests", get_store(), results, lambda: None)

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


# Chores of which a call fails, or takes long


def test_failures_that_are_not_counted_are_told_as_that(caplog):
    """Not as rows that were not removed; and they are counted soon after."""
    core = SimpleNamespace(counters=SimpleNamespace(has_failures=False))
    with caplog.at_level("WARNING", logger="atp.daemon"):
        CountFailures(core).failed(SimpleNamespace(error=OperationalError("away\n")))
    assert [record.fact for record in caplog.records] == ["failures_not_counted"]
    assert core.counters.has_failures


def test_a_long_call_makes_a_portion_smaller_and_quick_ones_larger(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(chore, "LONG_BY_VENDOR", {})
    monkeypatch.setattr(chore, "uptime", lambda: clock[0])
    portion = Portion(first=100, most=200)
    sizes = []
    for seconds in (2 * LONG, LONG / 10, LONG / 10, LONG / 10):
        with portion.measured():
            clock[0] += seconds
        sizes.append(portion.size)
    assert sizes == [50, 100, 200, 200]


def test_upkeep_that_is_cut_takes_less_the_next_time():
    """A cut call is rolled back: with as many it would be cut again, for ever."""
    limits = []

    def cut(*, limit, **more):
        limits.append(limit)
        raise OperationalError("cut")

    core = SimpleNamespace(
        timers=Timers(),
        queue=QueueState(),
        identity=SimpleNamespace(name="x", current="x"),
        store=SimpleNamespace(
            drop=cut,
            miss=cut,
            sweep=cut,
            schedules=SimpleNamespace(plan=cut, trim=cut),
            statistics=SimpleNamespace(pay=lambda limit: cut(limit=limit)),
            errors=SimpleNamespace(count=cut),
        ),
    )
    for kind in (Drop, Miss, Plan, Sweep, Trim, Count, CountFailures):
        limits.clear()
        cut_often = kind(core)
        for _ in range(3):
            with pytest.raises(OperationalError):
                cut_often.call()()
        first = limits[0]
        assert limits == [first, first // 2, first // 4], kind
