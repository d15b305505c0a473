"""Kills of everything that takes part in running attempts elsewhere."""

import os
import random
import signal
import time
from collections import defaultdict
from contextlib import suppress
from operator import itemgetter

import pytest

from atp.models import Instance
from atp.states import State
from tests import patience
from tests.app import tasks_executors as types
from tests.daemon.harness import is_alive
from tests.helpers import DEADLINE, wait_for

from .engines import MAY_MAKE_HOSTS

TASKS = 300
# In seconds: a kill takes longer on a machine with other work.
ALLOWED = 2.0 * patience.factor()
VICTIMS = ("worker", "head", "link", "follower", "dispatcher", "supervisor", "attempt")


@pytest.mark.long
@pytest.mark.timeout(1800 * patience.factor())
def test_300_tasks_end_once_each_under_kills(follows, engine, record):
    """G1, G3: nothing is lost, and no two attempts of an Instance run at once."""
    chosen = random.Random(7)
    types.beats.enqueue_many(
        {"path": str(record), "seconds": chosen.uniform(0.05, 1.0), "number": number}
        for number in range(TASKS)
    )
    daemons = [follows(), follows()]
    killed = []
    while Instance.objects.exclude(state__in=[State.FINISHED, State.FAILED]).exists():
        time.sleep(engine.pause)
        victim = chosen.choice(VICTIMS)
        killed.append(victim)
        place = chosen.randrange(2)
        if victim in ("worker", "head"):
            engine.kill(victim)
        elif victim == "link":
            if engine.host is not None:
                engine.host.cut()
                time.sleep(chosen.uniform(0.5, 10))
                engine.host.mend()
        elif victim == "supervisor":
            daemons[place].process.kill()
            daemons[place].process.wait(DEADLINE)
            daemons[place] = follows()
        elif victim == "attempt":
            starts = record.lines("start")
            if starts:
                with suppress(ProcessLookupError):
                    os.kill(starts[-1]["pid"], signal.SIGKILL)
        else:
            name = {"follower": "atpd-follower", "dispatcher": "atpd-dispatch"}[victim]
            for pid in daemons[place].named(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert len(killed) < 400, killed
    left = Instance.objects.exclude(state=State.FINISHED)
    assert not left.exists(), list(left.values_list("reason", flat=True))
    assert overlaps(record.lines()) == []
    ended = [line["number"] for line in record.lines("end")]
    assert set(ended) == set(range(TASKS))
    wait_for(lambda: all(daemon.process.poll() is None for daemon in daemons))


@pytest.mark.long
@pytest.mark.skipif(not MAY_MAKE_HOSTS, reason="needs root and the program ip, to make a host")
def test_attempt_behind_a_cut_link_is_dead_within_the_kill_limit(follows, engine, record):
    if engine.host is None:
        pytest.skip("this engine runs on this host")
    limits = {"KILL_AFTER": 6.0}
    follows(**limits)
    instance = types.beats.enqueue(path=str(record), seconds=30.0)
    [line] = record.wait_for("start")
    cut = time.monotonic()
    engine.host.cut()
    wait_for(lambda: not is_alive(line["pid"]))
    last = max(each["time"] for each in record.lines())
    # The leave counts from the last asking.
    assert last < cut + patience.scaled(limits)["KILL_AFTER"] + ALLOWED
    engine.host.mend()
    assert instance.wait(3 * DEADLINE).state == State.FINISHED
    second = min(each["time"] for each in record.lines() if each["attempt"] == 2)
    assert last < second


def overlaps(lines):
    """Return the numbers of which two attempts were alive at once, by what they have written.

    If the attempts of a number did not overlap, its lines in the order of time are in that of
    the attempts, too.
    """
    attempts = defaultdict(list)
    for line in sorted(lines, key=itemgetter("time")):
        attempts[line["number"]].append(line["attempt"])
    return [number for number, each in attempts.items() if each != sorted(each)]
