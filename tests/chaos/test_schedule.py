"""The schedule follows from the seed alone, is as rough as it has to be, and can be replayed."""

from collections import Counter

import pytest

from atp.conf.validation import KILL_MARGIN

from . import schedule
from .__main__ import SETTINGS

SEEDS = ["1", "2", "3"]


def test_it_follows_from_the_seed():
    assert schedule.drawn("7", 5, has_server=True) == schedule.drawn("7", 5, has_server=True)
    assert schedule.drawn("7", 5, has_server=True) != schedule.drawn("8", 5, has_server=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_rough_enough(seed):
    actions = schedule.drawn(seed, 10, has_server=True)
    names = Counter(action.name for action in actions)
    assert sum(names[name] for name in names if name.startswith("kill_")) >= 60
    assert names["restart_database"] >= 12
    assert all(0 <= action.at < 600 for action in actions)
    assert actions == schedule.in_order(actions)


@pytest.mark.parametrize("seed", SEEDS)
def test_supervisors_are_stopped_for_less_than_what_is_promised(seed):
    """Shorter than between kill limit and end of lease, with time left for the kill (G3)."""
    gap = SETTINGS["LEASE"] - SETTINGS["KILL_AFTER"] - KILL_MARGIN
    given = schedule.drawn(seed, 10, has_server=True) + schedule.short(has_server=True)
    for action in given:
        if action.name in ("stop_supervisor", "stop_daemon"):
            assert 0 < action.span < gap


def test_without_a_server_none_is_restarted():
    names = {action.name for action in schedule.drawn("7", 5, has_server=False)}
    assert names == set(schedule.DAEMONS)


def test_replay(tmp_path):
    actions = schedule.drawn("7", 2, has_server=True)
    schedule.write(actions, tmp_path / "schedule.json", seed="7", minutes=2)
    assert schedule.load(tmp_path / "schedule.json") == ("7", 2, actions)


def test_a_line_tells_all_of_an_action():
    action = schedule.Action(at=1.5, name="restart_database", span=2.25, how="SIGKILL")
    assert str(action) == "    1.50 restart_database for 2.25 s, SIGKILL (0.000, 0.000)"
