"""Every kind of bad task among neighbours: G5."""

import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from django.conf import settings
from django.db.models import Q

from atp import messages, queue
from atp.models import Kind
from atp.states import Reason, State
from tests.app import tasks_daemon, tasks_odd
from tests.app import tasks_poison as types
from tests.helpers import DEADLINE, NOBODY, wait_for

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
        ["deadlocks", "will_not_stop", "hops", "progresses"] + ["bombs"] * (os.geteuid() == 0),
        TIMED_OUT,
    ),
    "eats": TOO_LARGE,
    "lets_eat": TOO_LARGE,
    "logs": (Reason.FATAL, "characters …", None),
}
NOISE = {
    **dict.fromkeys(["floods", "lets_print"], TIMED_OUT),
    "publishes": (Reason.ERROR, "one attempt may publish 20 files", None),
    "leaves_children": (Reason.FATAL, "left three behind", None),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(DEATHS | LIMITS, id="deaths and limits"),
        pytest.param(NOISE, id="noise", marks=pytest.mark.long),
    ],
)
def test_bad_tasks_fail_within_their_budget_without_harm_to_neighbours(atpd, record, media, kinds):
    """G5: the log says why; endless output fills neither the log nor the table."""
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


def test_processes_end_with_their_attempt_unless_keep_processes(atpd, record):
    """G3, G5: then with the worker. Memory of earlier tasks is not charged to a later one."""
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
    # Either the supervisor sees the end of the worker first, or that of the dispatcher.
    told = [*daemon.facts("left_behind"), *daemon.facts("left_running")]
    assert [line["count"] for line in told] == [len(kept["pids"])]


def test_stuck_worker_is_replaced_and_its_tasks_go_to_others(atpd, record, flag):
    """G5: uncharged."""
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


def test_odd_ends_harm_no_neighbour_and_no_later_task(atpd, record, flag):
    """G2, G3, G5: odd delays, levels, messages and exceptions, and a fork that returns."""
    neighbour = tasks_daemon.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=2).ready(workers=2)
    record.wait_for("start")
    workers = daemon.workers()
    delays = [
        tasks_daemon.retry_after.enqueue(kind=kind) for kind in ("decimal", "long", "longest")
    ]
    garbled = tasks_daemon.garbled.enqueue()
    raised = [
        tasks_odd.raises.enqueue(name=name)
        for name in ("str exits", "everything raises", "fatal, frozen", "surrogates")
    ]
    levels = [tasks_daemon.odd_level.enqueue(level=level) for level in (-5, 100_000)]
    fork = tasks_daemon.fork.enqueue(path=str(record))
    ended = Q(kind__in=["retry", "fail", "finish"], attempt=1)
    for instance in (*delays, *levels, fork):
        wait_for(instance.log.filter(ended).exists, what="the end of the attempt")
        assert instance.refresh_from_db() or instance.lost == 0
    garbled.wait(DEADLINE)
    assert (garbled.state, garbled.reason) == (State.FAILED, Reason.FATAL)
    # An attempt that was handed back before its start counts as one too.
    assert garbled.retries == garbled.lost == 0
    assert "not text" in garbled.log.last().message
    for instance in raised:
        assert instance.wait(DEADLINE).state == State.FAILED
        assert (instance.restarts, instance.lost) == (0, 0)
    assert queue.response(fork).value == "original"
    after = [tasks_daemon.pid.enqueue() for _ in range(20)]
    assert {queue.response(other.wait(DEADLINE)).value for other in after} <= {
        *workers,
        *daemon.workers(),
    }
    flag.touch()
    neighbour.wait(DEADLINE)
    assert (neighbour.state, neighbour.attempt, neighbour.lost) == (State.FINISHED, 1, 0)
    assert not daemon.facts("dispatcher_died")


def test_removed_scratch_folder_fails_no_task(atpd, media):
    """G5: and one that another user has made in its place is not used."""
    daemon = atpd(processes=1)
    # Only root can give a folder to somebody else.
    for is_taken in [False] + [True] * (os.geteuid() == 0):
        tasks_daemon.talk.enqueue().wait(DEADLINE)
        folders = list(Path(settings.SCRATCH_DIR).glob("atp-scratch-*"))
        for folder in folders:
            shutil.rmtree(folder)
            if is_taken:
                folder.mkdir()
                folder.chmod(0o777)
                os.chown(folder, NOBODY, NOBODY)
        instance = tasks_daemon.talk.enqueue().wait(DEADLINE)
        assert instance.state == State.FINISHED, instance.log.last().message
        if is_taken:
            assert not any(list(folder.iterdir()) for folder in folders)
            assert not {*folders} & {*Path(queue.response(instance).value["scratch"]).parents}
            assert instance.log.filter(message__contains="is not this user's alone").exists()
    assert daemon.stop() == 0
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
