"""The contract of executors: what holds for an attempt holds where an engine runs it."""

import os
import signal
import subprocess
import sys

import pytest

from atp import queue
from atp.daemon.keeper import ASK_EVERY
from atp.executors.ticket import Ticket
from atp.models import Instance, Kind
from atp.states import Event, Reason, State
from tests import patience
from tests.app import tasks_executors as types
from tests.daemon.harness import is_alive
from tests.helpers import DEADLINE, child_environment, wait_for


def test_attempts_report_and_end_as_anywhere(follows):
    follows()
    instance = types.tells.enqueue().wait(DEADLINE)
    assert instance.state == State.FINISHED, instance.log.last().message
    assert instance.response.value["kept"] == 7
    assert instance.response.value["parent"] != os.getpid()
    assert [each["name"] for each in instance.response.files] == ["answer.txt"]
    said = list(instance.log.filter(kind=Kind.MESSAGE).values_list("message", flat=True))
    assert "elsewhere: said over there" in said
    assert instance.progress_message == "half"
    # One that pauses keeps its place.
    assert types.pauses.enqueue().wait(DEADLINE).response.value == "went on"
    late, crashes, unknown = (each.enqueue() for each in (types.late, types.crashes, types.unknown))
    for instance, said in ((late, "its time-out of 1 s has passed"), (crashes, "SIGSEGV")):
        assert instance.wait(DEADLINE).reason == Reason.STALE
        assert said in instance.log.get(kind=Event.EXPIRE).message
    assert unknown.wait(DEADLINE).reason == Reason.FATAL
    assert "does not know the Type elsewhere.unknown" in unknown.log.last().message


def test_cancel_ends_a_loop_in_c(follows, record):
    follows()
    instance = types.loops.enqueue(path=str(record))
    [line] = record.wait_for("start")
    queue.cancel(instance)
    assert instance.wait(DEADLINE).reason == Reason.CANCELLED
    assert not is_alive(line["pid"])


@pytest.mark.long
@pytest.mark.parametrize("engine", ["dask"], indirect=True)
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_an_attempt_has_given_dask_ends_with_it(atpd, engine, is_killed):
    from distributed import Client

    atpd(settings={"EXECUTORS": {types.ENGINE: engine.options}})
    instance = types.computes.enqueue(is_killed=is_killed).wait(DEADLINE)
    assert is_killed or instance.response.value == {"total": 6, "kept": 100}
    with Client(engine.options["ADDRESS"]) as client:
        # A lambda is sent as its code.
        count = lambda dask_scheduler: len(dask_scheduler.tasks)  # noqa: E731
        wait_for(lambda: client.run_on_scheduler(count) == 0)


def test_attempt_after_a_cancelled_one_is_not_lost(follows, record):
    """The process of a cancelled attempt exits, and takes no other; each of those runs once."""
    follows()
    for number in range(12):
        cancelled = types.beats.enqueue(path=str(record), number=number)
        record.wait_for("start", number + 1)
        queue.cancel(cancelled)
        assert types.note.enqueue(path=str(record)).wait(DEADLINE).state == State.FINISHED
        assert cancelled.wait(DEADLINE).reason == Reason.CANCELLED
    assert set(Instance.objects.values_list("restarts", flat=True)) == {0}
    assert len(record.lines("ran")) == 12


def test_many_short_attempts_survive_kills_of_the_dispatcher(follows, record):
    """A place whose attempt ends just when it is to be ended is over as well."""
    daemon = follows()
    types.short.enqueue_many({"path": str(record), "number": n} for n in range(400))
    for ended in (20, 60, 100):
        record.wait_for("ran", ended)
        os.kill(daemon.dispatcher(), signal.SIGKILL)
    wait_for(lambda: not Instance.objects.exclude(state=State.FINISHED).exists(), 2 * DEADLINE)
    assert {line["number"] for line in record.lines("ran")} == set(range(400))


def test_second_run_of_a_ticket_is_refused(follows, record):
    """An engine that has lost a worker runs its tasks again."""
    daemon = follows()
    instance = types.beats.enqueue(path=str(record), seconds=3.0)
    record.wait_for("start")
    at = daemon.wait_for_fact("following")
    ticket = Ticket(at["host"], at["port"], instance.pk, 1, types.beats.identifier)
    assert "it was started before" in refused(ticket.signed())
    assert "the ticket is forged" in refused(ticket.signed()[:-1] + "-")
    record.wait_for("end")
    assert len(record.lines("start")) == 1


def refused(ticket, **environment):
    """Return what the stub raises for a ticket, in a separate process."""
    source = f"from atp.executors import stub; stub.run({ticket!r})"
    command = [sys.executable, "-c", source]
    own = child_environment(**environment)
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    return done.stderr


def test_host_that_cannot_load_the_project_says_why():
    said = refused("ticket", DJANGO_SETTINGS_MODULE="no_such.settings")
    assert "cannot load the project: ModuleNotFoundError: No module named 'no_such'" in said


def test_attempt_dies_when_its_daemon_is_silent(follows, record):
    """G3: before another may run it. A daemon that only its own clock has stopped is silent."""
    limits = {"KILL_AFTER": 6.0}
    daemon = follows(**limits)
    instance = types.beats.enqueue(path=str(record))
    [line] = record.wait_for("start")
    [follower] = daemon.named("atpd-follower")
    os.kill(follower, signal.SIGSTOP)
    longest = patience.scaled(limits)["KILL_AFTER"] + (ASK_EVERY + 5) * patience.factor()
    wait_for(lambda: not is_alive(line["pid"]), longest)
    os.kill(follower, signal.SIGCONT)
    record.wait_for("start", 2)
    first, second = times_of_two(record)
    assert max(first) < min(second)
    queue.cancel(instance)
    assert instance.wait(DEADLINE).state == State.FAILED


def times_of_two(record):
    """Return when the first attempt has written, and when the second has."""
    return [[each["time"] for each in record.lines() if each["attempt"] == n] for n in (1, 2)]


@pytest.mark.parametrize("victim", ["follower", "dispatcher", "supervisor", "attempt"])
def test_attempt_whose_process_was_killed_runs_again_alone(follows, record, victim):
    daemon = follows()
    instance = types.beats.enqueue(path=str(record), seconds=2.0)
    [line] = record.wait_for("start")
    pids = {
        "follower": lambda: daemon.named("atpd-follower")[0],
        "dispatcher": daemon.dispatcher,
        "supervisor": lambda: daemon.pid,
        "attempt": lambda: line["pid"],
    }
    os.kill(pids[victim](), signal.SIGKILL)
    if victim == "supervisor":
        follows()
    assert instance.wait(DEADLINE).state == State.FINISHED
    first, second = times_of_two(record)
    assert instance.attempt == 2
    assert max(first) < min(second)
    # The first may have come to its end as well, if its leave outlived the follower.
    assert record.lines("end")[-1]["attempt"] == 2


def test_stop_hands_back_what_does_not_end(follows, record):
    daemon = follows()
    instance = types.beats.enqueue(path=str(record))
    [line] = record.wait_for("start")
    daemon.signal()
    daemon.wait_for_fact("daemon_stopping")
    daemon.signal()
    assert daemon.wait() == 0
    assert not is_alive(line["pid"])
    instance.refresh_from_db()
    assert (instance.state, instance.restarts) == (State.ACCEPTED, 0)
