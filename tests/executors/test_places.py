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


def has_polled(daemon):
    """Wait until the daemon has had the time to claim: it has run something meanwhile."""
    before = Daemon.objects.values_list("seen", flat=True).get()
    wait_for(lambda: Daemon.objects.values_list("seen", flat=True).get() > before)


def test_nothing_is_claimed_before_the_cluster_has_a_host(daemon, cluster, record):
    wait_for_engine(hosts=0, error="")
    instance = types.note.enqueue(path=str(record))
    has_polled(daemon)
    found = queue.explain(instance)
    assert (claims(instance), found.codes) == (0, ("engine-lacks",))
    assert found.reasons[0].sentence == "The cluster of the executor 'engine' has no host."
    assert [each.code for each in problems()] == ["engine-lacks"]
    cluster.add_worker()
    assert instance.wait(2 * DEADLINE).state == State.FINISHED
    assert claims(instance) == 1
    assert problems() == []


def test_type_that_takes_what_no_host_has_waits_until_one_has_it(daemon, cluster, record):
    cluster.add_worker()
    wait_for_engine(places=4, room=4)
    assert problems() == []
    waits = types.needs_gpu.enqueue(path=str(record))
    assert types.note.enqueue(path=str(record)).wait(DEADLINE).state == State.FINISHED
    [reason] = queue.explain(waits).reasons
    assert (reason.code, reason.facts["lacks"]) == ("engine-lacks", "GPU=1.")
    assert "'engine'" in reason.helps.label
    [problem] = problems()
    assert (problem.code, problem.types) == ("engine-lacks", (types.needs_gpu.identifier,))
    cluster.add_worker("--resources", "GPU=1")
    assert waits.wait(2 * DEADLINE).state == State.FINISHED
    assert claims(waits) <= 2


def problems():
    return [
        each
        for each in health.problems(overview.daemons(), overview.now())
        if each.code.startswith("engine")
    ]


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
        has_polled(daemon)
        assert claims(*beats) == 3
        waiting = next(each for each in beats if not claims(each))
        assert queue.explain(waiting).codes[0] in ("engine-full", "behind")
        started.cancel()
    for each in beats:
        queue.cancel(each)
    for each in beats:
        assert each.wait(DEADLINE).reason == Reason.CANCELLED


def test_nothing_is_claimed_while_the_engine_is_away(daemon, cluster, record):
    cluster.add_worker()
    wait_for_engine(places=4)
    cluster.stop()
    wait_for(lambda: Daemon.objects.exclude(engine__error="").exists(), 2 * DEADLINE)
    instance = types.note.enqueue(path=str(record))
    has_polled(daemon)
    [reason] = queue.explain(instance).reasons
    assert (claims(instance), reason.code) == (0, "engine-away")
    assert "'engine'" in reason.helps.label
    address = cluster.options["ADDRESS"].partition("//")[2]
    assert address not in queue.explain(instance, daemons=False).reasons[0].sentence
    [problem] = problems()
    assert problem.code == "engine-away"
    assert address in problem.error
    assert address not in problem.without_daemon().sentence + problem.without_daemon().error
    assert address not in "".join(health.health().problems)
    cluster.start()
    assert instance.wait(2 * DEADLINE).state == State.FINISHED
    assert claims(instance) == 1


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
