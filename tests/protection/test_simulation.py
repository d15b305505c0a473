"""Daemons that call a service under these rules, in a simulation: with any number of them."""

import pytest

from atp.protection.values import State, Verdict

from .simulation import Simulation

MANY = pytest.mark.parametrize("daemons", [1, 3, 6])


@MANY
def test_it_settles_below_what_the_service_takes(daemons):
    found = Simulation(daemons)
    found.run(60)
    answers = found.run(60)
    assert 18 <= answers[Verdict.OK] / 60 <= 20
    assert answers[Verdict.REFUSED] / 60 < 0.5


@MANY
def test_an_outage_costs_few_calls(daemons):
    """24 workers, the ten that open the breaker, and the probes."""
    found = Simulation(daemons)
    found.run(60)
    found.service.is_down = True
    probes = found.probes
    answers = found.run(60)
    probes = found.probes - probes
    assert answers[Verdict.FAILED] <= 24 + 10 + probes
    assert probes <= 8
    assert found.protection.state in (State.OPEN, State.HALF_OPEN)


@MANY
def test_it_comes_back_after_an_outage(daemons):
    found = Simulation(daemons)
    found.run(60)
    found.service.is_down = True
    found.run(10)
    found.service.is_down = False
    found.run(40)
    assert found.run(20)[Verdict.OK] / 20 >= 16


@MANY
def test_it_follows_a_service_that_takes_less_and_then_more(daemons):
    found = Simulation(daemons)
    found.run(60)
    found.service.rate = 5
    found.run(30)
    assert 4 <= found.run(30)[Verdict.OK] / 30 <= 5.2
    found.service.rate = 40
    found.run(30)
    assert found.run(30)[Verdict.OK] / 30 >= 25
