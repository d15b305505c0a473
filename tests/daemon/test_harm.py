"""What a handler says and does costs no neighbour, no later task and no daemon (G5)."""

import os
import shutil
from pathlib import Path

import pytest
from django.conf import settings

from atp import queue
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, NOBODY, wait_for


def ended(instance):
    """Whether its first attempt has ended in a way that the handler asked for."""
    return instance.log.filter(kind__in=["retry", "fail", "finish"], attempt=1).exists()


@pytest.mark.parametrize("kind", ["decimal", "long", "longest"])
def test_delay_of_any_kind(atpd, record, flag, kind):
    """A delay that cannot be computed with ends its own attempt, and costs no neighbour (G5)."""
    neighbour = types.wait.enqueue(path=str(record), until=str(flag))
    daemon = atpd(processes=2).ready(workers=2)
    record.wait_for("start")
    instance = types.retry_after.enqueue(kind=kind)
    wait_for(lambda: ended(instance), what="the end of the attempt")
    flag.touch()
    neighbour.wait(DEADLINE)
    assert (neighbour.state, neighbour.attempt, neighbour.lost) == (State.FINISHED, 1, 0)
    assert not daemon.facts("dispatcher_died")


def test_message_that_cannot_be_stored(atpd):
    """A Fatal in words that a column does not take is FATAL all the same (G2, G5)."""
    instance = types.garbled.enqueue()
    daemon = atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason, instance.attempt) == (State.FAILED, Reason.FATAL, 1)
    assert "not text" in instance.log.last().message
    assert not daemon.facts("dispatcher_died")


@pytest.mark.parametrize("level", [-5, 100_000])
def test_note_that_cannot_be_stored(atpd, level):
    """A line that cannot be stored costs that line, not the attempt or the dispatcher (G5)."""
    instance = types.odd_level.enqueue(level=level)
    daemon = atpd(processes=1)
    instance.wait(DEADLINE)
    assert ended(instance)
    assert (instance.attempt, instance.lost) == (1, 0)
    assert not daemon.facts("dispatcher_died")


def test_copy_of_a_worker_takes_no_part(atpd, record):
    """A handler's fork that returns neither answers for its parent nor takes Tasks (G3, G5)."""
    instance = types.fork.enqueue(path=str(record))
    daemon = atpd(processes=1).ready(workers=1)
    instance.wait(DEADLINE)
    after = [types.pid.enqueue() for _ in range(20)]
    pids = {queue.response(other.wait(DEADLINE)).value for other in after}
    assert queue.response(instance).value == "original"
    assert pids <= set(daemon.workers())


def test_surroundings_of_the_next_task(atpd):
    """Each handler starts in the directory, umask and signals that its worker had (G5)."""
    atpd(processes=1)
    types.wander.enqueue().wait(DEADLINE)
    instance = types.surroundings.enqueue().wait(DEADLINE)
    assert instance.state == State.FINISHED, instance.log.last().message
    directory, umask, terminated = queue.response(instance).value
    assert Path(directory) == Path.cwd()
    assert umask != 0o777
    assert terminated is False


def test_scratch_folder_was_cleaned_up(atpd, media):
    """What tidies /tmp under a daemon that runs for weeks fails no task (G5)."""
    daemon = atpd(processes=1)
    types.talk.enqueue().wait(DEADLINE)
    for folder in Path(settings.SCRATCH_DIR).glob("atp-scratch-*"):
        shutil.rmtree(folder)
    instance = types.talk.enqueue().wait(DEADLINE)
    assert instance.state == State.FINISHED, instance.log.last().message
    assert daemon.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_scratch_folder_that_another_user_has_made_anew_is_not_used(atpd, media):
    daemon = atpd(processes=1)
    types.talk.enqueue().wait(DEADLINE)
    taken = list(Path(settings.SCRATCH_DIR).glob("atp-scratch-*"))
    for folder in taken:
        shutil.rmtree(folder)
        folder.mkdir()
        folder.chmod(0o777)
        os.chown(folder, NOBODY, NOBODY)
    try:
        instance = types.talk.enqueue().wait(DEADLINE)
        assert instance.state == State.FINISHED, instance.log.last().message
        assert not any(list(folder.iterdir()) for folder in taken)
        assert not {*taken} & {*Path(queue.response(instance).value["scratch"]).parents}
        assert instance.log.filter(message__contains="is not this user's alone").exists()
        assert daemon.stop() == 0
    finally:
        for folder in taken:
            shutil.rmtree(folder, ignore_errors=True)
