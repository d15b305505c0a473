"""Simulates daemons that call a service under the protection rules."""

import pytest

from atp.downstreams.protection import State, Verdict

from .simulation import Simulation

LONG = pytest.mark.long


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
