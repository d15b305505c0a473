"""Every kind of bad task among neighbours: G5."""

import os
import random
import signal
from pathlib import Path

import pytest

from atp import messages, queue
from atp.models import Kind
from atp.states import Reason, State
from tests.app import tasks_daemon
from tests.app import tasks_poison as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import is_made_by, tells
from .harness import is_alive

NEIGHBOURS = 40
# With which reason each kind has FAILED, what the log says of it, and, if its last attempt was
# lost, the function that makes that message.
ENDED = {
    "exits": "exited with status 7",
    "exits_well": "exited with status 0",
    "crashes": "was ended by SIGSEGV (invalid memory access)",
    "aborts": "was ended by SIGABRT (abort)",
    "kills_itself": "was ended by SIGKILL, sent by another process or, when memory ran out",
}
DEATHS = {
    **{
        kind: (Reason.STALE, f"its worker {how}", messages.worker_died)
        for kind, how in ENDED.items()
    },
    "overflows": (None, "", None),
    "closes_everything": (None, "", None),
    "wrecks": (Reason.FATAL, "wrecked everything", None),
}
TIMED_OUT = (Reason.STALE, "its time-out of ", messages.timed_out)
TOO_LARGE = (
    Reason.STALE,
    "of memory, its Type allows 200.0 MiB (max_memory)",
    messages.too_much_memory,
)
LIMITS = {
    **dict.fromkeys(
        ["spins", "deadlocks", "will_not_stop", "hops"] + ["bombs"] * (os.geteuid() == 0),
        TIMED_OUT,
    ),
    "eats": TOO_LARGE,
    "lets_eat": TOO_LARGE,
}
NOISE = {
    **dict.fromkeys(["floods", "lets_print", "progresses"], TIMED_OUT),
    "logs": (Reason.FATAL, "characters …", None),
    "publishes": (Reason.ERROR, "one attempt may publish 20 files", None),
    "leaves_children": (Reason.FATAL, "left three behind", None),
}


@pytest.mark.parametrize("kinds", [DEATHS, LIMITS, NOISE], ids=["deaths", "limits", "noise"])
def test_poison_among_neighbours(atpd, record, media, kinds):
    """Each ends FAILED within its budget, says why, and costs its neighbours nothing (G5).

    What is printed and logged without end fills neither the log nor the table.
    """
    poisons = {kind: getattr(types, kind).enqueue(path=str(record)) for kind in kinds}
    neighbours = [
        *types.neighbour.enqueue_many({"path": str(record), "number": n} for n in range(20)),
        *types.neighbour.using(priority=-1).enqueue_many(
            {"path": str(record), "number": n} for n in range(20, NEIGHBOURS)
        ),
    ]
    daemon = atpd(processes=2, settings={"MAX_FILES": 20}).ready(workers=2)
    everything = [*poisons.values(), *neighbours]
    random.shuffle(everything)
    for instance in everything:
        instance.wait(DEADLINE)

    for kind, instance in poisons.items():
        reason, words, lost = kinds[kind]
        event = "fail" if lost is None else "expire"
        said = instance.log.filter(kind=event).last().message
        assert instance.state == State.FAILED, kind
        assert reason in (None, instance.reason), (kind, instance.reason, said)
        assert words in said if lost is None else is_made_by(said, lost, words), kind
        attempts = len(record.lines(kind))
        assert 1 <= attempts <= instance.type.max_restarts + 1, (kind, attempts)
        assert len(instance.log.last().message) < 10_000
        assert instance.log.filter(kind__in=Kind).count() <= 1000 + 2
    for instance in neighbours:
        assert (instance.state, instance.restarts, instance.lost) == (State.FINISHED, 0, 0)
    assert set(record.numbers("neighbour").values()) == {1}
    # The pool is at full strength, and nothing else is left under it.
    daemon.ready(workers=2)
    wait_for(lambda: len(daemon.family()) == 4, what="only what belongs to it")
    after = types.neighbour.enqueue(path=os.devnull, number=-1)
    assert after.wait(DEADLINE).state == State.FINISHED
    assert not daemon.facts("dispatcher_died")
    assert daemon.stop() == 0
    assert "neighbour -1" in [line["message"] for line in daemon.facts("printed")]
    # Whether some was dropped depends on how much a busy machine prints: see test_journal.
    assert daemon.log_path.stat().st_size < 16 * types.MIB


def test_what_an_attempt_leaves_running_ends_with_it(atpd, record):
    """No part of an attempt runs on when it is FINISHED, in whatever session it is (G3, G5).

    With keep_processes it lives on, whatever runs next, until its worker ends. If memory runs
    out, the kernel prefers workers to those that look after them. A worker that earlier tasks
    have made large costs a modest one nothing.
    """
    daemon = atpd(processes=1).ready()
    large, modest = types.fattens.enqueue().wait(DEADLINE), types.modest.enqueue().wait(DEADLINE)
    assert (modest.state, modest.attempt) == (State.FINISHED, 1)
    assert queue.response(modest).value == queue.response(large).value
    types.keeps.enqueue(path=str(record)).wait(DEADLINE)
    instance = types.returns.enqueue(path=str(record)).wait(DEADLINE)
    assert instance.state == State.FINISHED
    [kept] = record.lines("kept")
    assert all(is_alive(pid) for pid in kept["pids"])
    assert not any(is_alive(pid) for pid in record.lines("left")[0]["pids"])
    [told] = instance.log.filter(kind=Kind.MESSAGE, level__gte=30)
    words = "3 processes that it left behind were ended: "
    assert is_made_by(told.message, messages.processes_left_behind, words)

    def score(pid):
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    [worker] = daemon.workers()
    assert score(worker) == min(score(daemon.pid) + 500, 1000)
    assert score(daemon.dispatcher()) == score(daemon.pid)
    assert daemon.stop() == 0
    assert not daemon.facts("worker_died")
    assert not any(is_alive(pid) for pid in kept["pids"])


def test_a_worker_that_starts_nothing(atpd, record, flag):
    """What a stuck worker was given goes to others, uncharged; it is replaced (G5)."""
    daemon = atpd(processes=2).ready(workers=2)
    types.neighbour.enqueue(path=str(record), number=0).wait(DEADLINE)
    stuck = daemon.workers()[0]
    os.kill(stuck, signal.SIGSTOP)
    instances = tasks_daemon.note.enqueue_many(
        {"path": str(record), "number": n} for n in range(40)
    )
    for instance in instances:
        instance.wait(DEADLINE)
        assert (instance.state, instance.restarts, instance.lost) == (State.FINISHED, 0, 0)
    killed = daemon.wait_for_fact("worker_killed")
    assert killed["pid"] == stuck
    assert tells(killed["why"], messages.worker_stuck())
    daemon.ready(workers=2)
