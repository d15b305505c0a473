"""When a daemon looks at the queue again, by what it was told and what it has found."""

from types import SimpleNamespace

import pytest

from atp.daemon.chores.chore import Chores
from atp.daemon.chores.table import CLAIMING
from atp.daemon.dispatcher import claiming, queue_state
from atp.daemon.dispatcher.caution import Caution
from atp.daemon.dispatcher.claiming import FIRST_WAIT, Claiming
from atp.daemon.dispatcher.queue_state import QueueState
from atp.daemon.dispatcher.unrecorded import BATCH
from atp.daemon.pool.downstreams import Downstreams
from atp.daemon.pool.misfits import Misfits
from atp.daemon.pool.pool import Pool
from atp.daemon.system.processes import uptime
from atp.store.memory import ClaimMemory
from atp.store.values import Outlook
from tests.samples import claimed


class Timers:
    def __init__(self):
        self.later_by = {}

    def due(self, name, every, early=0.0):
        return name == "outlook"

    def later(self, name, seconds):
        self.later_by[name] = seconds


class Daemon:
    """Claiming as it is, with everything around it as the test says: claims find nothing."""

    def __init__(self):
        self.claims, self.outlook = 0, Outlook()
        self.queue = QueueState()
        self.queue.call()
        self.while_claiming = self.before_outlook = lambda: None
        self.timers = Timers()
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
        return self.outlook

    def turn(self):
        self.claiming.turn(claims=True)


@pytest.fixture
def daemon():
    return Daemon()


def test_who_finds_nothing_looks_ever_later(daemon):
    waits = []
    for _ in range(4):
        daemon.queue.call()
        daemon.turn()
        waits.append(daemon.timers.later_by["outlook"])
    assert waits == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT, 8 * FIRST_WAIT]


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


def test_who_hears_of_something_looks_soon_however_often_it_was_nothing(daemon):
    """G15: a limited attempt that ends is news each time, and a token comes soon."""
    for _ in range(4):
        daemon.queue.put_back()
        daemon.turn()
        assert daemon.timers.later_by["outlook"] == FIRST_WAIT


def test_who_is_called_while_it_looks_looks_once_more(daemon):
    """G15: what has come meanwhile, that claim may not have seen."""
    daemon.while_claiming = daemon.queue.call
    daemon.turn()
    daemon.while_claiming = lambda: None
    for _ in range(3):
        daemon.turn()
    assert daemon.claims == 2


def test_what_is_due_later_is_not_forgotten_for_a_claim_that_found_nothing(daemon, monkeypatch):
    """G15: when a rate has its next token is known."""
    daemon.queue.more_waits = False
    daemon.outlook = Outlook(due=5.0)
    daemon.turn()
    daemon.queue.put_back()
    daemon.turn()
    assert daemon.claims == 1
    now = uptime()
    monkeypatch.setattr(queue_state, "uptime", lambda: now + 6)
    daemon.turn()
    assert daemon.claims == 2
    daemon.turn()
    assert daemon.claims == 2


def test_who_is_handed_one_and_has_no_worker_free_keeps_what_it_has_claimed():
    """G9: others may be idle, so what was handed over goes back, and nothing else."""
    pool, back = Pool(), []
    pool.put([claimed(1), claimed(2)])
    attempts = SimpleNamespace(
        stopping="",
        limited=SimpleNamespace(add=lambda tasks: None),
        hand_back=lambda holdings, why: back.extend(holdings),
    )
    core = SimpleNamespace(
        pool=pool,
        queue=QueueState(),
        identity=None,
        downstreams=SimpleNamespace(too_early=lambda pool: []),
    )
    Claiming(core, None, attempts, None).handed(claimed(3))
    assert [holding.claimed.instance for holding in back] == [3]
    assert [holding.claimed.instance for holding in pool.waiting] == [1, 2]


def test_who_is_handed_one_that_its_downstream_forbids_hands_it_back_once():
    """G5: it was told later than others that the downstream is well again."""
    pool, back = Pool(), []
    attempts = SimpleNamespace(
        stopping="",
        limited=SimpleNamespace(add=lambda tasks: None),
        hand_back=lambda holdings, why: back.extend(holdings),
    )
    downstreams = SimpleNamespace(too_early=lambda pool: [("relay", pool.take_all_waiting())])
    core = SimpleNamespace(pool=pool, queue=QueueState(), identity=None, downstreams=downstreams)
    Claiming(core, None, attempts, None).handed(claimed(3))
    assert [holding.claimed.instance for holding in back] == [3]


@pytest.mark.parametrize(("unrecorded", "behind"), [(0, 0), (BATCH, 0), (BATCH + 50, 50)])
def test_what_cannot_be_recorded_in_one_go_counts_against_a_claim(unrecorded, behind):
    """G9: nothing is gained by running more than can be recorded."""
    asked = []
    pool = SimpleNamespace(is_low=lambda: True, wanted=lambda behind: asked.append(behind))
    core = SimpleNamespace(
        pool=pool,
        queue=QueueState(),
        identity=SimpleNamespace(leased=True),
        unrecorded=SimpleNamespace(pending=unrecorded),
    )
    chores = SimpleNamespace(turn=lambda: None)
    Claiming(core, SimpleNamespace(busy=False), None, chores).turn(claims=True)
    assert asked == [behind]
