"""A daemon claims for an engine only what the cluster can place now."""

import os
import signal
import time

import pytest

from atp import queue
from atp.models import Daemon, Instance
from atp.reports import health, overview
from atp.states import Event, Reason, State
from tests import patience
from tests.app import tasks_executors as types
from tests.helpers import DEADLINE, wait_for

from .engines import ENGINES, dask

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("dask" not in ENGINES, reason="the library of dask is not installed"),
]


@pytest.fixture
def cluster(tmp_path):
    """A scheduler of Dask, without workers so far."""
    with dask(tmp_path, workers=0) as engine:
        yield engine


@pytest.fixture
def daemon(atpd, cluster):
    own = {"EXECUTORS": {types.ENGINE: cluster.options}, "POLL_EVERY": 0.2}
    return atpd("--executor", types.ENGINE, settings=own)


def wait_for_engine(**wanted):
    """Wait until the daemon reports these facts of its engine."""

    def is_reported():
        [engine] = Daemon.objects.values_list("engine", flat=True) or [{}]
        return engine and all(engine[name] == value for name, value in wanted.items())

    wait_for(is_reported, 2 * DEADLINE, what=f"an engine with {wanted}")


def claims(*instances):
    return sum(each.log.filter(kind=Event.CLAIM).count() for each in instances)


def has_polled():
    """Wait until the daemon has had the time to claim: it has run something meanwhile."""
    before = Daemon.objects.values_list("seen", flat=True).get()
    wait_for(lambda: Daemon.objects.values_list("seen", flat=True).get() > before)


def problems():
    found = health.problems(overview.daemons(), overview.now())
    return [each.code for each in found if each.code.startswith("engine")]


def test_nothing_is_claimed_before_the_cluster_has_what_it_takes(daemon, cluster, record):
    """First it has no host, then none with a GPU, and then it is away."""
    wait_for_engine(hosts=0, error="")
    instance = types.note.enqueue(path=str(record))
    has_polled()
    assert (claims(instance), queue.explain(instance).codes) == (0, ("engine-lacks",))
    assert problems() == ["engine-lacks"]
    cluster.add_worker()
    assert instance.wait(2 * DEADLINE).state == State.FINISHED
    assert claims(instance) == 1
    wait_for_engine(places=4, room=4)
    assert problems() == []
    waits = types.needs_gpu.enqueue(path=str(record))
    assert types.note.enqueue(path=str(record)).wait(DEADLINE).state == State.FINISHED
    [reason] = queue.explain(waits).reasons
    assert (reason.code, reason.facts["lacks"]) == ("engine-lacks", "GPU=1.")
    cluster.add_worker("--resources", "GPU=1")
    assert waits.wait(2 * DEADLINE).state == State.FINISHED
    assert claims(waits) <= 2
    cluster.stop()
    wait_for(lambda: Daemon.objects.exclude(engine__error="").exists(), 2 * DEADLINE)
    instance = types.note.enqueue(path=str(record))
    has_polled()
    assert (claims(instance), queue.explain(instance).codes) == (0, ("engine-away",))
    assert problems() == ["engine-away"]
    [engine] = Daemon.objects.values_list("engine", flat=True)
    assert cluster.options["ADDRESS"].partition("//")[2] in engine["error"]
    cluster.start()
    assert instance.wait(2 * DEADLINE).state == State.FINISHED
    assert claims(instance) == 1


def test_no_more_is_claimed_than_the_cluster_has_places(daemon, cluster, record):
    """Neither places that others use, nor resources that are used, are claimed for."""
    from distributed import Client

    cluster.add_worker("--resources", "GPU=1")
    wait_for_engine(places=4, room=4)
    with Client(cluster.options["ADDRESS"]) as client:
        started = client.submit(time.sleep, 600, pure=False)
        wait_for_engine(places=4, room=3)
        beats = [types.beats.enqueue(path=str(record), number=n) for n in range(5)]
        record.wait_for("start", 3)
        has_polled()
        assert claims(*beats) == 3
        waiting = next(each for each in beats if not claims(each))
        assert queue.explain(waiting).codes[0] in ("engine-full", "behind")
        started.cancel()
    for each in beats:
        queue.cancel(each)
    for each in beats:
        assert each.wait(DEADLINE).reason == Reason.CANCELLED


def test_orderly_stop_hands_back_at_once_what_the_cluster_has_not_begun(daemon, cluster, record):
    cluster.add_worker()
    wait_for_engine(places=4, room=4)
    workers = cluster.pids("worker")
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        instances = [types.note.enqueue(path=str(record)) for _ in range(3)]
        wait_for(lambda: claims(*instances) == 3)
        daemon.signal()
        # Its grace is 30 seconds.
        wait_for(
            lambda: Instance.objects.filter(state=State.ACCEPTED, restarts=0).count() == 3,
            5 * patience.factor(),
        )
        assert daemon.wait() == 0
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
