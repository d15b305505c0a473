"""Every kind of bad task among neighbours: G5."""

import os
import random
import signal

import psutil
import pytest

from atp import queue
from atp.models import Instance, LogRecord
from atp.rows.log import Kind
from atp.states import Reason, State
from atp.words import attempt_messages
from tests.app import tasks_daemon
from tests.app import tasks_poison as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import is_made_by, tells
from .harness import is_alive

NEIGHBOURS = 100
# With which reason each kind has FAILED, what the log says of it, and, if its last attempt was
# lost, the function that makes that message.
DEATHS = {
    "exits": (Reason.STALE, "its worker exited with status 7", attempt_messages.worker_died),
    "exits_well": (Reason.STALE, "its worker exited with status 0", attempt_messages.worker_died),
    "crashes": (
        Reason.STALE,
        "its worker was ended by SIGSEGV (invalid memory access)",
        attempt_messages.worker_died,
    ),
    "aborts": (
        Reason.STALE,
        "its worker was ended by SIGABRT (abort)",
        attempt_messages.worker_died,
    ),
    "kills_itself": (
        Reason.STALE,
        "by SIGKILL, sent by another process or, when memory ran out",
        attempt_messages.worker_died,
    ),
    "overflows": (None, "", None),
    "closes_everything": (None, "", None),
    "wrecks": (Reason.FATAL, "wrecked everything", None),
}
TIMED_OUT = (Reason.STALE, "its time-out of 1 s has passed", attempt_messages.timed_out)
TOO_LARGE = (
    Reason.STALE,
    "of memory, its Type allows 200.0 MiB (max_memory)",
    attempt_messages.too_much_memory,
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
    **dict.fromkeys(["prints", "lets_print", "progresses"], TIMED_OUT),
    "logs": (Reason.FATAL, "characters …", None),
    "publishes": (Reason.ERROR, "one attempt may publish 20 files", None),
    "leaves_children": (Reason.FATAL, "left three behind", None),
}


@pytest.mark.parametrize("kinds", [DEATHS, LIMITS, NOISE], ids=["deaths", "limits", "noise"])
def test_poison_among_neighbours(atpd, record, media, kinds):
    """Each ends FAILED within its budget, says why, and costs 100 neighbours nothing (G5)."""
    poisons = {kind: getattr(types, kind).enqueue(path=str(record)) for kind in kinds}
    neighbours = [
        *types.neighbour.enqueue_many({"path": str(record), "number": n} for n in range(50)),
        *types.neighbour.using(priority=-1).enqueue_many(
            {"path": str(record), "number": n} for n in range(50, NEIGHBOURS)
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
    for instance in neighbours:
        assert (instance.state, instance.restarts, instance.lost) == (State.FINISHED, 0, 0)
    assert set(record.numbers("neighbour").values()) == {1}
    assert_whole(daemon)


def assert_whole(daemon, processes=2):
    """The pool is at full strength, and nothing else is left under it."""
    daemon.ready(workers=processes)
    wait_for(lambda: len(daemon.family()) == processes + 2, what="only what belongs to it")
    after = types.neighbour.enqueue(path=os.devnull, number=-1)
    assert after.wait(DEADLINE).state == State.FINISHED
    assert not daemon.facts("dispatcher_died")
    assert daemon.stop() == 0
    assert "neighbour -1" in [line["message"] for line in daemon.facts("printed")]


def test_a_flood_of_words_is_bounded(atpd, record, media):
    """What is printed and logged without end fills neither the log nor the table (G5)."""
    poisons = [kind.enqueue(path=str(record)) for kind in (types.floods, types.logs)]
    daemon = atpd(processes=2)
    for instance in poisons:
        instance.wait(DEADLINE)
    assert daemon.stop() == 0
    # Whether some was dropped depends on how much a busy machine prints: see test_worker_output.
    assert daemon.log_path.stat().st_size < 8 * types.MIB
    assert LogRecord.objects.filter(kind__in=Kind, instance__isnull=False).count() <= 1000 + 2
    assert len(poisons[1].log.last().message) < 10_000


def test_what_an_attempt_leaves_running_ends_with_it(atpd, record):
    """No part of an attempt runs on when it is FINISHED, in whatever session it is (G3, G5)."""
    daemon = atpd(processes=1).ready()
    instance = types.returns.enqueue(path=str(record)).wait(DEADLINE)
    assert not any(is_alive(pid) for pid in record.lines("left")[0]["pids"])
    assert instance.state == State.FINISHED
    [told] = instance.log.filter(kind=Kind.MESSAGE, level__gte=30)
    words = "3 processes that it left behind were ended: "
    assert is_made_by(told.message, attempt_messages.left_behind, words)
    assert not daemon.facts("worker_died")


def test_what_is_kept_on_purpose_stays(atpd, record):
    """With keep_processes they live on, whatever runs next, until their worker ends."""
    daemon = atpd(processes=1).ready()
    types.keeps.enqueue(path=str(record)).wait(DEADLINE)
    types.returns.enqueue(path=str(record)).wait(DEADLINE)
    [kept] = record.lines("kept")
    assert all(is_alive(pid) for pid in kept["pids"])
    assert not any(is_alive(pid) for pid in record.lines("left")[0]["pids"])
    assert daemon.stop() == 0
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
    assert tells(killed["why"], attempt_messages.worker_stuck())
    daemon.ready(workers=2)


def test_memory_before_an_attempt_is_not_its_own(atpd, record):
    """A worker that earlier tasks have made large costs a modest one nothing (G5)."""
    atpd(processes=1).ready()
    types.fattens.enqueue().wait(DEADLINE)
    instance = types.modest.enqueue().wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 1)
    assert (
        queue.response(instance).value
        == queue.response(Instance.objects.of_type("poison.fattens").get()).value
    )


def test_who_goes_first_when_memory_runs_out(atpd):
    """The kernel prefers workers to those that look after them (G5)."""
    daemon = atpd(processes=1).ready()

    def score(pid):
        with open(f"/proc/{pid}/oom_score_adj") as file:
            return int(file.read())

    [worker] = daemon.workers()
    assert score(worker) == min(score(daemon.pid) + 500, 1000)
    assert score(daemon.dispatcher()) == score(daemon.pid)
    assert psutil.Process(worker).is_running()
