"""The schedule of faults follows from the seed and has enough of them."""

from collections import Counter
from threading import Event
from types import SimpleNamespace

import pytest
from django.db import transaction

from atp.conf import KILL_MARGIN
from atp.models import Instance

from .. import environment
from ..app.tasks_daemon import noop
from ..helpers import DEADLINE, Thread
from . import schedule, server
from .__main__ import SETTINGS


def test_the_same_seed_draws_the_same_schedule_of_faults():
    actions = schedule.drawn("7", 2, has_server=True)
    assert schedule.drawn("7", 2, has_server=True) == actions
    assert schedule.drawn("8", 2, has_server=True) != actions
    without = {action.name for action in schedule.drawn("7", 5, has_server=False)}
    assert without == set(schedule.DAEMONS)


def test_a_drawn_schedule_has_many_faults_and_stops_supervisors_only_briefly():
    """After a stop the supervisor can still kill its workers before the lease ends (G3)."""
    gap = SETTINGS["LEASE"] - SETTINGS["KILL_AFTER"] - KILL_MARGIN
    for seed in "123":
        actions = schedule.drawn(seed, 10, has_server=True)
        names = Counter(action.name for action in actions)
        assert sum(names[name] for name in names if name.startswith("kill_")) >= 60
        assert names["restart_database"] >= 12
        assert all(0 <= action.at < 600 for action in actions)
        assert actions == schedule.in_order(actions)
        for action in actions + schedule.short(has_server=True):
            if action.name in ("stop_supervisor", "stop_daemon"):
                assert 0 < action.span < gap


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(environment.kind() == "sqlite", reason="SQLite has no locks of rows")
def test_the_open_transaction_fault_locks_only_the_row_of_one_instance(monkeypatch):
    holds, is_over = Event(), Event()

    def sleep(span):
        holds.set()
        assert is_over.wait(DEADLINE)

    def free():
        """Return the keys of the Instances that nobody has locked."""
        with transaction.atomic():
            rows = Instance.objects.select_for_update(skip_locked=True).order_by("pk")
            return list(rows.values_list("pk", flat=True))

    instances = [noop.enqueue() for _ in range(5)]
    keys = [instance.pk for instance in instances]
    monkeypatch.setattr(server, "time", SimpleNamespace(sleep=sleep))
    holding = Thread(server.hold, "instance", 0.99, 1.0)
    assert holds.wait(DEADLINE)
    assert free() == keys[:-1]
    is_over.set()
    assert holding.result() == (f"instance {keys[-1]} was locked", str(instances[-1].uuid))
    assert free() == keys
