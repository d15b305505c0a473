"""Where Types run: daemons with labels, and resources that attempts take of a host's capacity."""

from atp import queue
from atp.models import Daemon
from atp.reports import health
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

GIB = 1 << 30


def test_type_runs_only_where_its_needs_are_met(atpd, record):
    slow = atpd("--label", "disk=slow", "--type", "daemon.*", processes=1).ready()
    [left_out] = [line for line in slow.facts("type_left_out") if "disk" in line["lacks"]]
    assert (left_out["type"], left_out["lacks"]) == ("daemon.on_fast_disk", "disk=fast")
    instances = [types.on_fast_disk.enqueue(path=str(record)) for _ in range(5)]
    [reason] = queue.explain(instances[0]).reasons
    assert (reason.code, reason.sentence) == (
        "unserved",
        "No daemon has disk=fast; the nearest is disk=slow.",
    )
    problems = " ".join(health.health().problems)
    assert "'daemon.on_fast_disk' is due, and no daemon has disk=fast" in problems

    fast = atpd("--label", "disk=fast", "--label", "region=eu", processes=1).ready()
    for instance in instances:
        assert instance.wait(DEADLINE).state == State.FINISHED
    assert {line["who"].partition(" ")[0] for line in record.lines("ran")} == {
        str(Daemon.objects.get(pid=fast.pid))
    }
    assert Daemon.objects.get(pid=fast.pid).labels == {"disk": "fast", "region": "eu"}


def test_attempts_never_take_more_than_the_capacity_of_their_host(atpd, record):
    """Types that take none go on meanwhile, and each attempt has devices of its own."""
    for number in range(24):
        types.trains.enqueue(path=str(record), seconds=0.05)
        types.loads.enqueue(path=str(record), seconds=0.02)
        types.note.enqueue(path=str(record), number=number)
    daemon = atpd("--drain", "--capacity", "gpu=2,memory=4GiB", processes=5)
    assert daemon.wait() == 0
    assert len(record.lines("start")) == len(record.lines("end")) == 48
    assert len(record.lines("ran")) == 24
    moments = list(running_at_each_start(record.lines()))
    assert max(sum(each["gpu"] for each in running) for running in moments) == 2
    assert max(sum(each["memory"] for each in running) for running in moments) == 4
    for running in moments:
        devices = [device for each in running for device in each["devices"]]
        assert len(devices) == len(set(devices)) == sum(each["gpu"] for each in running)
    assert all(each["visible"] in each["devices"] for each in record.lines("start") if each["gpu"])


def running_at_each_start(lines):
    """Yield, for each start in the record, the lines of the attempts that run then."""
    running = {}
    for line in sorted(lines, key=lambda line: line["time"]):
        if line["event"] == "start":
            running[line["pid"]] = line
            yield list(running.values())
        elif line["event"] == "end":
            del running[line["pid"]]


def test_waiting_instance_says_which_resources_are_in_use(atpd, record, flag):
    """An idle worker is not handed a Task for which its host has no room."""
    daemon = atpd("--capacity", "gpu=1,memory=2GiB", processes=2).ready()
    first = types.trains.enqueue(path=str(record), seconds=DEADLINE)
    wait_for(lambda: record.lines("start"))
    second = types.trains.enqueue(path=str(record))
    wait_for(lambda: Daemon.objects.get().idle, what="the daemon is idle beside it")
    third = types.trains.enqueue(path=str(record))
    reason = next(each for each in queue.explain(third).reasons if each.code == "resources")
    assert reason.sentence == (
        "It takes gpu=1, memory=1.0 GiB, and no daemon that serves it has that much left: in use "
        "are gpu=1 of 1, memory=1.0 GiB of 2.0 GiB."
    )
    assert reason.facts["capacity"] == {"gpu": 1, "memory": 2 * GIB}
    queue.cancel(first)
    for instance in (second, third):
        assert instance.wait(DEADLINE).state == State.FINISHED
        assert [each.event for each in instance.log.all() if each.event][:2] == ["enqueue", "claim"]
        assert instance.attempt == 1
    assert daemon.stop() == 0
