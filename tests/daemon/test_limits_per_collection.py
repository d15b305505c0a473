"""``max_running_per_collection`` as real daemons keep it."""

import statistics
from itertools import pairwise

import pytest

from atp import queue
from atp.models import Task
from tests.app import tasks_daemon as types
from tests.daemon.harness import Record
from tests.daemon.test_controls import kill_a_worker
from tests.helpers import wait_for

pytestmark = pytest.mark.each_database

COLLECTIONS = ("a", "b", "")


def is_empty():
    return not Task.objects.exists()


@pytest.fixture
def records(tmp_path):
    """A record for each collection, in which its attempts say whether they were alone."""
    return {name: Record(tmp_path / f"of {name}.jsonl") for name in COLLECTIONS}


def test_one_at_a_time_of_each_whatever_dies(atpd, records):
    """G3: over three daemons, with workers killed; and different collections run at once."""
    queue.limit("daemon.alone", max_running_per_collection=1)
    for name, record in records.items():
        of_lane = types.alone.using(collection=name)
        of_lane.enqueue_many({"path": str(record)} for _ in range(20))
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(3)]
    for daemon in daemons:
        kill_a_worker(daemon)
    wait_for(is_empty, what="an empty queue")
    for record in records.values():
        assert len(record.lines("start")) >= 20
        assert all(line["alone"] for line in record.lines("start"))
    assert [daemon.stop() for daemon in daemons] == [0, 0, 0]


def test_a_lane_goes_on_when_there_is_room_again(atpd, records):
    """G15: nobody waits for the next look of a daemon."""
    queue.limit("daemon.alone", max_running_per_collection=1)
    record = records["a"]
    of_lane = types.alone.using(collection="a")
    of_lane.enqueue_many({"path": str(record), "seconds": 0.1} for _ in range(20))
    rarely = {"POLL_EVERY": 10}
    daemons = [atpd(processes=1, settings=rarely).ready(workers=1) for _ in range(2)]
    wait_for(is_empty, what="an empty queue")
    times = [line["time"] for line in record.lines("start")]
    assert statistics.median(after - before for before, after in pairwise(times)) < 3
    assert all(line["alone"] for line in record.lines("start"))
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_other_lanes_run_beside_one_that_is_full(atpd, records, flag):
    queue.limit("daemon.alone", max_running_per_collection=1)
    long = types.alone.using(collection="a", priority=5)
    long.enqueue_many({"path": str(records["a"]), "seconds": 30} for _ in range(9))
    short = types.alone.using(collection="b")
    short.enqueue_many({"path": str(records["b"]), "seconds": 0} for _ in range(9))
    daemon = atpd(processes=2).ready(workers=2)
    records["b"].wait_for("end", 9)
    assert len(records["a"].lines("start")) == 1
    daemon.destroy()
