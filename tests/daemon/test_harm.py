"""What a handler says and does costs no neighbour, no later task and no daemon (G5)."""

import os
import shutil
from pathlib import Path

import pytest
from django.conf import settings
from django.db.models import Q

from atp import queue
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.app import tasks_odd
from tests.helpers import DEADLINE, NOBODY, wait_for

ODD = {
    "str exits": Reason.ERROR,
    "everything raises": Reason.ERROR,
    "the module is odd": Reason.ERROR,
    "fatal, str raises": Reason.FATAL,
    "fatal, frozen": Reason.FATAL,
    "retry, no super": Reason.ERROR,
    "surrogates": Reason.ERROR,
}


def test_odd_ends_cost_nobody_else(atpd, record, flag):
    """A delay, a message or a level that a column does not take ends its own attempt (G2, G5).

    So does an exception that cannot be looked at, after the tries that it is allowed.
    A handler's fork that returns neither answers for its parent nor takes Tasks (G3). What a
    handler leaves of its process, directory, umask and signals, the next does not find.
    """
    neighbour = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=2).ready(workers=2)
    record.wait_for("start")
    workers = daemon.workers()
    delays = [types.retry_after.enqueue(kind=kind) for kind in ("decimal", "long", "longest")]
    garbled = types.garbled.enqueue()
    raised = {name: tasks_odd.raises.enqueue(path=str(record), name=name) for name in ODD}
    levels = [types.odd_level.enqueue(level=level) for level in (-5, 100_000)]
    fork = types.fork.enqueue(path=str(record))
    ended = Q(kind__in=["retry", "fail", "finish"], attempt=1)
    for instance in (*delays, *levels, fork):
        wait_for(instance.log.filter(ended).exists, what="the end of the attempt")
        assert instance.refresh_from_db() or instance.lost == 0
    garbled.wait(DEADLINE)
    assert (garbled.state, garbled.reason, garbled.attempt) == (State.FAILED, Reason.FATAL, 1)
    assert "not text" in garbled.log.last().message
    for name, instance in raised.items():
        instance.wait(DEADLINE)
        tries = 1 if ODD[name] is Reason.FATAL else 2
        assert (instance.state, instance.reason) == (State.FAILED, ODD[name]), name
        assert [line["attempt"] for line in record.lines(name)] == [*range(1, tries + 1)]
        assert (instance.restarts, instance.lost) == (0, 0), name
    assert queue.response(fork).value == "original"
    after = [types.pid.enqueue() for _ in range(20)]
    assert {queue.response(other.wait(DEADLINE)).value for other in after} <= {
        *workers,
        *daemon.workers(),
    }
    types.wander.enqueue().wait(DEADLINE)
    instance = types.surroundings.enqueue().wait(DEADLINE)
    assert instance.state == State.FINISHED, instance.log.last().message
    directory, umask, terminated = queue.response(instance).value
    assert Path(directory) == Path.cwd()
    assert umask != 0o777
    assert terminated is False
    flag.touch()
    neighbour.wait(DEADLINE)
    assert (neighbour.state, neighbour.attempt, neighbour.lost) == (State.FINISHED, 1, 0)
    assert not daemon.facts("dispatcher_died")


@pytest.mark.parametrize("is_taken", [False, True])
def test_scratch_folder_was_cleaned_up(atpd, media, is_taken):
    """What tidies /tmp under a daemon that runs for weeks fails no task (G5).

    A folder that another user has made there is not used.
    """
    if is_taken and os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody else")
    daemon = atpd(processes=1)
    types.talk.enqueue().wait(DEADLINE)
    folders = list(Path(settings.SCRATCH_DIR).glob("atp-scratch-*"))
    for folder in folders:
        shutil.rmtree(folder)
        if is_taken:
            folder.mkdir()
            folder.chmod(0o777)
            os.chown(folder, NOBODY, NOBODY)
    try:
        instance = types.talk.enqueue().wait(DEADLINE)
        assert instance.state == State.FINISHED, instance.log.last().message
        if is_taken:
            assert not any(list(folder.iterdir()) for folder in folders)
            assert not {*folders} & {*Path(queue.response(instance).value["scratch"]).parents}
            assert instance.log.filter(message__contains="is not this user's alone").exists()
        assert daemon.stop() == 0
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
