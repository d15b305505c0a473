"""The project's log handlers, filters and formatters: they cost their own lines at most.

Those of :mod:`tests.log_sinks` raise, or stand, at level ERROR. A failed task is such a
line of worker and dispatcher, a worker that dies is one of the supervisor.
"""

from collections import Counter

import pytest
from django.db import connection

from atp.states import TERMINAL, Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import stays, wait_for

from .harness import Lines
from .inside import Complaints
from .scenario import on_postgresql
from .test_freezes import has_begun

FAILING = 20

# What is bad, how, of which logger, and whether the daemon's own log is there beside it.
BAD = [
    ("handler", "block", "root", False),
    ("factory", "raise", "root", False),
    ("stderr", "", "root", False),  # a pipe that nobody reads
    *(
        pytest.param(bad, marks=pytest.mark.long)
        for bad in (
            ("filter", "block", "atp.daemon", True),
            ("close", "block", "root", False),
            ("formatter", "raise", "atp", False),
            ("handler", "raise", "root", False),
            ("filter", "raise", "atp.worker", True),
            ("factory", "block", "root", True),
        )
    ),
]


def ended(instances):
    return all(each.refresh_from_db() or each.state in TERMINAL for each in instances)


class RefusesToBeTrueError(Exception):
    def __bool__(self):
        raise SystemExit("no")


def test_any_error_of_a_log_handler_is_told(capfd):
    Complaints().tell("a handler failed", RefusesToBeTrueError("disk full"))
    told = capfd.readouterr().err
    assert "a handler failed" in told
    assert "RefusesToBeTrueError" in told


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: "-".join(bad[:3]))
def test_bad_log_handlers_cost_only_their_own_lines(atpd, record, flag, tmp_path, bad):
    """G5, G11: each failed task is charged its own failure, and its neighbour nothing."""
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


@pytest.mark.slow
@pytest.mark.timeout(180)
@on_postgresql
def test_blocked_log_handlers_do_not_end_the_lease(atpd, record, flag, tmp_path):
    """G3: nothing runs twice at once while supervisor and dispatcher have a line to log."""
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
def test_log_handlers_get_each_line_with_its_process(atpd, tmp_path):
    """Whichever process calls the handlers."""
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
def test_process_started_prepares_each_process_before_its_first_task(atpd, tmp_path):
    """G2, G5: a worker may take longer than a stuck one is waited for. One receiver fails."""
    failing = types.error.enqueue()
    sink = Lines(tmp_path / "lines")
    told = {"what": "queue", "path": str(sink.path), "fails": "supervisor", "slow": 11}
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
    assert (failing.attempt, failing.lost) == (1, 0)
    assert daemon.stop() == 0
