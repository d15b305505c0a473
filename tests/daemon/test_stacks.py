"""The stacks of running attempts, with real daemons: asked for by an operator, or before a kill."""

import os
import signal
import threading
from collections import Counter
from contextlib import suppress

import pytest

from atp import messages, queue
from atp.exceptions import IllegalTransition
from atp.models import ASKED, Instance, Kind, LogRecord, Task
from atp.states import Event, State
from tests import patience
from tests.app import tasks_daemon
from tests.app import tasks_stacks as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import is_made_by
from . import inside
from .scenario import ask, on_postgresql, wait_until

JANE = "user jane via page"
# How many hangs are looked at, how many of their stacks have to show the line, and their time-out
# in seconds.
HANGS, LEAST, TIMEOUT = 200, 198, 8.0 * patience.factor()


def asked_stack(instance):
    """Ask for the stack of a running attempt; return its record."""
    before = instance.log.filter(kind=Kind.STACK).count()
    queue.take_stack(instance, by=JANE)
    wait_for(
        lambda: instance.log.filter(kind=Kind.STACK).count() > before, DEADLINE, what="its stack"
    )
    return instance.log.filter(kind=Kind.STACK).last()


def running(kind, **inputs):
    instance = kind.enqueue(**inputs)
    wait_until(State.RUNNING, instance)
    return instance


def settled(kind, instance):
    """Return the record of a stack in which the handler has come to where it hangs."""

    def look():
        record = asked_stack(instance)
        return record if all(line in record.message for line in types.expected(kind)) else None

    return wait_for(look, DEADLINE, what="the line in which it hangs")


def test_stack_of_each_kind_of_hang_shows_the_line_of_its_handler(atpd):
    """A Python loop, a call of C, a socket, a lock, a sleep, and a deadlock of threads."""
    daemon = atpd(processes=len(types.KINDS), settings={"CANCEL_GRACE": 0.1})
    instances = {kind: running(kind) for kind in types.KINDS}
    for kind, instance in instances.items():
        record = settled(kind, instance)
        assert (record.detail, record.state) == (ASKED, State.RUNNING)
        assert record.attempt == instance.attempt == 1
        assert queue.task(instance).request == ""
    queue.cancel(*instances.values(), by=JANE)
    for instance in instances.values():
        instance.wait(DEADLINE)
        assert instance.attempt == 1
    assert not daemon.facts("worker_died")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_stacks_of_200_hangs_show_the_right_line_in_198(atpd, capsys):
    """G5. Each is taken once when somebody asks, and once more at the time-out."""
    calls = [types.KINDS[number % len(types.KINDS)] for number in range(HANGS)]
    instances = {kind.using(timeout=TIMEOUT).enqueue(): kind for kind in calls}
    # The hangs take all processors, and the daemon is not to lose its lease.
    atpd(processes=8, settings={"LEASE": 60, "KILL_AFTER": 50, "STATEMENT_TIMEOUT": 20})
    asked = set()

    def ask_new_ones():
        for instance in Instance.objects.filter(state=State.RUNNING).exclude(pk__in=asked):
            with suppress(IllegalTransition):  # its time-out has just passed
                queue.take_stack(instance, by=JANE)
            asked.add(instance.pk)
        return not Task.objects.exists()

    wait_for(ask_new_ones, 1500, what="the time-outs of all")
    right = Counter()
    for instance, kind in instances.items():
        for record in instance.log.filter(kind=Kind.STACK):
            is_right = all(line in record.message for line in types.expected(kind))
            right[record.detail] += is_right
            if not is_right:
                print(kind.identifier, record.detail, record.message)
    with capsys.disabled():
        print(f"\nright lines of {HANGS} hangs: {dict(right)}")
    assert len(asked) == HANGS
    assert min(right[ASKED], right["time-out"]) >= LEAST


def test_stack_is_taken_before_an_attempt_is_killed_for_its_time_or_memory(atpd):
    """And of nobody else."""
    tasks_daemon.noop.enqueue_many({} for _ in range(20))
    atpd(processes=2)
    slow, large = types.times_out.enqueue(), types.grows.enqueue()
    for instance, cause in ((slow, "time-out"), (large, "memory")):
        instance.wait(DEADLINE)
        kinds = [record.kind for record in instance.log.all()]
        assert kinds.index(Kind.STACK) == kinds.index(Event.EXPIRE) - 1
        record = instance.log.get(kind=Kind.STACK)
        assert (record.detail, record.attempt) == (cause, 1)
        assert f'{types.__file__}", line ' in record.message
        # Its memory is read while it has any.
        assert messages.stack(0, 0.0, None).partition("resident")[0] not in record.message
    assert all(
        line in slow.log.get(kind=Kind.STACK).message for line in types.expected(types.times_out)
    )
    assert LogRecord.objects.filter(kind=Kind.STACK).count() == 2


def test_stack_is_shown_beside_own_signal_handlers_and_a_pause(atpd, flag):
    """If it takes all signals, nothing kills its worker, and the next task shows its stack."""
    daemon = atpd(processes=1, settings={"CANCEL_GRACE": 0.1})
    instance = running(types.takes_signals)
    settled(types.takes_signals, instance)
    queue.cancel(instance, by=JANE)
    instance.wait(DEADLINE)

    instance = running(types.ignores_signals, until=str(flag))
    record = asked_stack(instance)
    assert f'{types.__file__}", line ' not in record.message
    [worker] = daemon.workers()
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED
    instance = running(types.sleeps)
    assert daemon.workers() == [worker]
    queue.pause(instance, by=JANE)
    settled(types.sleeps, instance)
    assert queue.task(instance).request == "pause"
    queue.cancel(instance, by=JANE)

    instance = running(types.waits_paused)
    queue.pause(instance, by=JANE)
    wait_until(State.PAUSED, instance)
    assert asked_stack(instance).state == State.PAUSED
    queue.resume(instance, by=JANE)
    wait_until(State.RUNNING, instance)


@on_postgresql
def test_stack_says_what_the_database_session_of_the_attempt_waits_for(atpd):
    key = 815
    ask("SELECT pg_advisory_lock(%s) IS NULL", key)
    own = ask("SELECT pg_backend_pid()")
    atpd(processes=1)
    instance = running(types.waits_for_lock, key=key)

    def tells_of(words):
        return is_made_by(asked_stack(instance).message, messages.session, words)

    wait_for(lambda: tells_of(f"blocked by session {own}"), DEADLINE, what="its lock")
    assert tells_of("active, waits for Lock advisory")
    ask("SELECT pg_advisory_unlock(%s)", key)
    assert instance.wait(DEADLINE).state == State.FINISHED


def _run_threads(files):
    """Run threads that compute and threads that end; the main thread waits."""
    files.answer(0)

    def compute():
        while True:
            exec(compile("def f(n):\n    return n and f(n - 1)\nf(30)", "<own>", "exec"), {})

    def start_others():
        while True:
            other = threading.Thread(target=sum, args=(range(100),))
            other.start()
            other.join()

    for target in (compute, compute, start_others):
        threading.Thread(target=target, daemon=True).start()
    threading.Event().wait()


@pytest.fixture
def forked():
    """Return a function that forks a process, which runs a function with the files of stacks.

    It returns the files and the pid.
    """
    files, pids = inside.StackFiles(1), []
    files.open()

    def fork(function):
        pids.append(inside.processes.fork(lambda parent: function(files)))
        return files, pids[-1]

    yield fork
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    files.close()


def test_looks_at_running_threads_leave_the_process_as_it_is(forked):
    """faulthandler crashes a process in which it writes the stacks of other threads that run."""
    files, pid = forked(_run_threads)
    looks, found = inside.Looks(files), []
    wait_for(lambda: len(inside.processes.threads(pid)) >= 4, what="its threads")
    for _ in range(200):
        look = looks.begin(0, pid, (1, 1), is_asked=False, is_stopped=False)
        wait_for(lambda look=look: looks.is_over(look))
        found.append(looks.result(look))
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    answered = [stack for stack in found if stack.text.startswith("Main thread")]
    assert len(answered) > len(found) / 2
    assert any("<own>" in stack.text for stack in found)


def test_stack_of_an_attempt_that_ended_before_its_kill_is_no_other_attempts(forked, monkeypatch):
    """It ends just when it has answered: the worker lives, and the stack is forgotten."""
    files, pid = forked(lambda files: threading.Event().wait())
    page = inside.Page(1)
    workers = inside.worker_output.WorkerProcesses(page, 1, files)
    worker = inside.worker_output.WorkerProcess(0, pid)
    workers.add(worker)

    def end_now(look):
        page.enter(0, *inside.Running(2, 1, deadline=inside.NEVER, started=0.0))
        return True

    monkeypatch.setattr(workers._looks, "is_over", end_now)
    page.enter(0, *inside.Running(1, 1, deadline=0.0, started=0.0))
    workers.enforce_limits()
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert (worker.why, worker.stack) == ("", None)
