"""Workers that are killed amid thousands of short tasks."""

from collections import Counter

from atp.models import Instance, LogRecord, Task
from atp.states import State
from atp.store import get_store
from tests.app import tasks_daemon as types
from tests.helpers import wait_for
from tests.store.world import World

COUNT, KILLS = 1500, 8


def test_killed_workers_lose_no_task_and_only_running_tasks_are_charged(atpd, record, tmp_path):
    """G1, G2, G5, G6."""
    types.note.enqueue_many({"path": str(record), "number": n} for n in range(COUNT))
    daemon = atpd(processes=2).ready(workers=2)
    step = COUNT // (KILLS + 1)
    for number in range(1, KILLS + 1):
        wait_for(lambda n=number: len(record.lines()) >= n * step, what=f"{number * step} notes")
        daemon.kill_a_worker()
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert set(Instance.objects.values_list("state", flat=True)) == {State.FINISHED}
    ran = record.numbers("ran")
    assert set(ran) == set(range(COUNT))
    charged = Instance.objects.filter(restarts__gt=0).count()
    # Only what a worker was at when it was killed is charged, and only that may have run twice.
    assert charged <= KILLS
    assert sum(count - 1 for count in ran.values()) <= charged
    assert Counter(LogRecord.objects.values_list("kind", flat=True))["finish"] == COUNT
    World(get_store(), tmp_path).check()
