"""Daemons that call a service under the protection rules, simulated with an artificial clock."""

import heapq
import random
from dataclasses import dataclass, field

import pytest

from atp.downstreams import protection
from atp.downstreams.protection import Protection, Report, State, Verdict

STEP = 0.01
EVERY, SOONEST = 0.5, 0.05
LONG = pytest.mark.long


@dataclass
class Service:
    """A service that accepts ``rate`` calls a second, ``burst`` at once, and refuses the rest."""

    rate: float = 20.0
    burst: float = 5.0
    tokens: float = 5.0
    at: float = 0.0
    is_down: bool = False

    def call(self, now):
        if self.is_down:
            return Verdict.FAILED
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return Verdict.REFUSED
        self.tokens -= 1
        return Verdict.OK


@dataclass
class Daemon:
    workers: int
    running: list = field(default_factory=list)
    counts: dict = field(default_factory=dict)
    row: int = 0
    had_ok: bool = False
    is_bad: bool = False
    probe: tuple | None = None
    told_at: float = -1.0

    def report(self, now):
        counts = tuple((now - at, *numbers) for at, numbers in self.counts.items())
        found = Report(counts=counts, row=self.row, had_ok=self.had_ok, probe=self.probe)
        self.counts, self.row, self.had_ok, self.is_bad, self.probe = {}, 0, False, False, None
        self.told_at = now
        return found


class Simulation:
    """A number of daemons with 24 workers in total, which always have work to do."""

    def __init__(self, daemons=3, seed=1):
        self.random = random.Random(seed)
        self.service = Service()
        self.protection = Protection()
        self.daemons = [Daemon(24 // daemons) for _ in range(daemons)]
        self.now, self._next, self.probes = 0.0, 0, 0
        self.answers = []

    def run(self, seconds):
        """Simulate this many seconds; return the number of calls by verdict."""
        before, until = len(self.answers), self.now + seconds
        while self.now < until:
            self.now += STEP
            for daemon in self.random.sample(self.daemons, len(self.daemons)):
                self._turn(daemon)
        found = self.answers[before:]
        return {verdict: found.count(verdict) for verdict in Verdict}

    def _turn(self, daemon):
        while daemon.running and daemon.running[0][0] <= self.now:
            self._end(daemon, *heapq.heappop(daemon.running))
        passed = self.now - daemon.told_at
        is_urgent = daemon.probe or (daemon.is_bad and passed >= SOONEST)
        is_open = self.protection.state is not State.CLOSED
        if is_urgent or (is_open and daemon.counts and passed >= EVERY):
            spread = self.random.uniform(-1, 1)
            report = daemon.report(self.now)
            self.protection = protection.apply_report(
                self.protection, report, self.now, spread=spread
            )
        while len(daemon.running) < daemon.workers and not daemon.is_bad and self._may():
            self._next += 1
            is_probe = False
            if self.protection.state is State.THROTTLED:
                self.protection = protection.spend_tokens(self.protection, 1, self.now)
            elif self.protection.state is State.OPEN:
                self.protection = protection.start_probe(self.protection, self._next, self.now)
                is_probe, self.probes = True, self.probes + 1
            verdict = self.service.call(self.now)
            ends = self.now + self.random.uniform(0.02, 0.1)
            heapq.heappush(daemon.running, (ends, self._next, verdict.value, is_probe))

    def _may(self):
        found = self.protection
        if found.state is State.CLOSED:
            return True
        if found.opens_in(self.now) or found.state is State.HALF_OPEN:
            return False
        return found.state is State.OPEN or found.available(self.now) >= 1

    def _end(self, daemon, at, key, verdict, is_probe):
        verdict = Verdict(verdict)
        self.answers.append(verdict)
        place = list(Verdict).index(verdict)
        daemon.counts.setdefault(self.now // 1, [0, 0, 0])[place] += 1
        daemon.row = daemon.row + 1 if verdict is Verdict.FAILED else 0
        daemon.had_ok |= verdict is not Verdict.FAILED
        daemon.is_bad = verdict is not Verdict.OK
        if is_probe:
            daemon.probe = key, verdict


@pytest.mark.slow
@pytest.mark.parametrize("daemons", [3, pytest.param(1, marks=LONG), pytest.param(6, marks=LONG)])
def test_the_rate_follows_the_service_and_an_outage_costs_few_calls(daemons):
    """An outage costs at most 24 busy workers, ten calls that open the breaker, and the probes."""
    found = Simulation(daemons)
    found.run(60)
    answers = found.run(30)
    assert 18 <= answers[Verdict.OK] / 30 <= 20
    assert answers[Verdict.REFUSED] / 30 < 0.5
    found.service.is_down = True
    probes = found.probes
    answers = found.run(60)
    probes = found.probes - probes
    assert answers[Verdict.FAILED] <= 24 + 10 + probes
    assert probes <= 8
    assert found.protection.state in (State.OPEN, State.HALF_OPEN)
    found.service.is_down = False
    found.run(80)
    assert found.run(20)[Verdict.OK] / 20 >= 16
    found.service.rate = 5
    found.run(30)
    assert 4 <= found.run(30)[Verdict.OK] / 30 <= 5.2
    found.service.rate = 40
    found.run(30)
    assert found.run(30)[Verdict.OK] / 30 >= 25
