"""The project's log handlers, filters and formatters: they cost their own lines at most.

Those of :mod:`tests.log_sinks` raise, or stand, at level ERROR. A failed task is such a
line of worker and dispatcher, a worker that dies is one of the supervisor.
"""

import logging
import threading
from collections import Counter

import pytest
from django.db import connection

from atp.daemon.pool.stuck_workers import KILL_AFTER
from atp.daemon.sinks import log_thread
from atp.daemon.sinks.log_thread import LogThread
from atp.states import TERMINAL, Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, stays, wait_for

from .harness import Lines
from .test_freezes import has_begun

FAILING = 20

# What is bad, how, of which logger, and whether the daemon's own log is there beside it.
BAD = [
    ("handler", "raise", "root", False),
    ("handler", "block", "root", False),
    ("handler", "block", "atp.daemon", True),
    ("formatter", "raise", "atp", False),
    ("formatter", "block", "atp.daemon", True),
    ("filter", "raise", "atp.worker", True),
    ("filter", "block", "atp.daemon", True),
    ("factory", "raise", "root", False),
    ("factory", "block", "root", True),
    ("close", "block", "root", False),
    ("stderr", "", "root", False),  # a pipe that nobody reads
]


def ended(instances):
    return all(each.refresh_from_db() or each.state in TERMINAL for each in instances)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: "-".join(bad[:3]))
def test_bad_handlers_cost_their_own_lines(atpd, record, flag, tmp_path, bad):
    """G5, G11: each failed task is charged its own failure, the neighbour nothing, all goes on."""
    neighbour = types.wait.enqueue(path=str(record), until=str(flag))
    sink = dict(zip(("what", "how", "logger"), bad[:3], strict=True), path=str(tmp_path / "lines"))
    daemon = atpd(processes=2, sink=sink, own_log=bad[3])
    record.wait_for("start")
    dispatcher = daemon.dispatcher()
    # Together more than a pipe holds.
    failing = [types.error.enqueue(words="x" * 8000) for _ in range(FAILING)]
    failing += [types.hasty_error.enqueue() for _ in range(2)]
    crashing = types.crash_once.enqueue(path=str(record))
    wait_for(lambda: ended([*failing, crashing]), what="the end of all but the neighbour")
    flag.touch()
    wait_for(lambda: ended([neighbour]), what="the end of the neighbour")
    assert {(each.state, each.reason, each.restarts) for each in failing} == {
        (State.FAILED, Reason.ERROR, 0)
    }
    assert (crashing.state, crashing.restarts) == (State.FINISHED, 1)
    assert (neighbour.state, neighbour.attempt, neighbour.restarts) == (State.FINISHED, 1, 0)
    assert daemon.dispatchers() == [dispatcher]
    assert daemon.stop() == 0


@pytest.mark.timeout(180)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite the lease is a lock")
def test_never_twice_at_once_while_handlers_stand(atpd, record, flag, tmp_path):
    """G3: supervisor and dispatcher have a line that is never taken; the lease goes on."""
    ticking = types.ticking.enqueue(path=str(record), until=str(flag))
    sink = {"what": "handler", "how": "block", "logger": "atp.daemon"}
    atpd(processes=2, sink={**sink, "path": str(tmp_path / "lines")})
    record.wait_for("start")
    crashing = types.crash_once.enqueue(path=str(tmp_path / "crash"))
    failing = types.fatal.enqueue()
    wait_for(lambda: ended([crashing, failing]))
    other = atpd(processes=1).ready()
    # Longer than a lease of the tests.
    stays(lambda: not has_begun(record, 2), 10.0, what="one attempt")
    flag.touch()
    wait_for(lambda: ended([ticking]))
    assert (ticking.state, ticking.attempt) == (State.FINISHED, 1)
    assert {line["attempt"] for line in record.lines("tick")} <= {1}
    assert not other.facts("daemons_lost")


@pytest.mark.timeout(120)
def test_lines_come_to_the_handlers_as_they_were_logged(atpd, tmp_path):
    """Each with the process where it was logged, whoever calls the handlers for it."""
    failing = types.error.enqueue()
    sink = Lines(tmp_path / "lines")
    daemon = atpd(processes=1, own_log=False, sink={"what": "", "path": str(sink.path)})
    wait_for(lambda: ended([failing]))
    dispatcher, [worker] = daemon.dispatcher(), daemon.workers()
    assert daemon.stop() == 0
    lines = [line for line in sink.all() if line["event"] == "line"]
    origin = {daemon.pid: "atpd", dispatcher: "atpd-dispatch", worker: "atpd-worker-0"}
    roles = Counter((origin.get(line["origin"]), line["role"]) for line in lines)
    assert {*roles} >= {
        ("atpd", "atpd-log"),
        ("atpd-dispatch", "atpd-dispatch"),
        ("atpd-worker-0", "atpd-worker-0"),
    }
    texts = [line["text"] for line in lines]
    [first] = [text for text in texts if "atpd" in text and "started: 1 workers" in text]
    assert f"database 'default' ({connection.vendor}, " in first
    assert sum("stopped after" in text for text in texts) == 1
    [raised] = [text for text in texts if "daemon.error" in text and " raised" in text]
    assert "Traceback" in raised


@pytest.mark.timeout(120)
def test_a_process_is_made_ready_when_it_begins(atpd, tmp_path):
    """The listener of a QueueHandler, started by process_started in each process; one fails."""
    failing = types.error.enqueue()
    sink = Lines(tmp_path / "lines")
    told = {"what": "queue", "path": str(sink.path), "fails": "supervisor"}
    daemon = atpd(processes=2, own_log=False, sink=told)
    wait_for(lambda: ended([failing]))

    def lines(event):
        return [line for line in sink.all() if line["event"] == event]

    wait_for(lambda: any(" raised" in line["text"] for line in lines("line")))
    wait_for(lambda: any("failed, ERROR" in line["text"] for line in lines("line")))
    wait_for(lambda: any("process_started failed" in line["text"] for line in lines("line")))
    started = Counter((line["started"], line["pid"]) for line in lines("started"))
    wanted = {("supervisor", daemon.pid), ("dispatcher", daemon.dispatcher())}
    wanted |= {("worker", pid) for pid in daemon.workers()}
    assert {each for each in started if each[0] != "log"} == wanted
    assert [role for role, _ in started].count("log") == 1
    assert set(started.values()) == {1}
    assert daemon.stop() == 0


@pytest.mark.timeout(120)
def test_a_worker_may_need_long_to_be_ready(atpd, tmp_path):
    """G2, G5: it may load a model; it gets tasks when it is ready, and is not taken for stuck."""
    sink = Lines(tmp_path / "lines")
    told = {"what": "stderr", "path": str(sink.path), "slow": KILL_AFTER + 1}
    daemon = atpd(processes=1, sink=told)
    instance = types.noop.enqueue()
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 1)
    assert not daemon.facts("worker_killed")


def test_what_is_dropped_is_counted(monkeypatch):
    """The queue is bounded; once the handlers go on, the log says how much is missing."""
    monkeypatch.setattr(log_thread, "MOST_WAITING", 5)
    dropped, taken, stands, goes_on = [], [], threading.Event(), threading.Event()

    class Standing(logging.Handler):
        def emit(self, record):
            stands.set()
            goes_on.wait(60)
            taken.append(record.msg)

    logger = logging.getLogger("tests.standing")
    monkeypatch.setattr(logger, "handlers", [Standing()])
    monkeypatch.setattr(logger, "propagate", False)
    thread = LogThread(lambda count: dropped.append(count))
    thread.start()
    try:
        logger.error("first")
        assert stands.wait(60)
        for number in range(8):
            logger.error(number)
        goes_on.set()
        thread.close()
    finally:
        log_thread.loggers.stop()
    assert taken == ["first", 0, 1, 2, 3, 4]
    assert dropped == [3]
