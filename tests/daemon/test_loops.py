"""Loops: many attempts of coroutine functions in one process."""

import asyncio
import itertools
import os
import random
import re
import signal
import sys
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from atp import messages as attempt_messages
from atp import queue
from atp.models import Daemon, Instance, Kind
from atp.operations.registry import registry
from atp.states import Event, Reason, State
from atp.store.failures import TIMEOUT
from tests.app import tasks_daemon
from tests.app import tasks_loops as types
from tests.helpers import DEADLINE, manage, wait_for

from ..nonsense import tells
from . import inside
from .harness import Record, story
from .scenario import ONCE, ask, run

HERE = ("--label", "tests=loops")
pytestmark = pytest.mark.usefixtures("media")


def ended(instances, deadline=DEADLINE):
    for instance in instances:
        instance.wait(deadline)
    return [instance.reason or instance.state for instance in instances]


def the_loop(daemon):
    """Return the pid of the loop of a daemon."""
    [loop] = wait_for(daemon.loops, what="a loop")
    return loop


def messages(instance):
    return [row.message for row in instance.log.filter(kind=Kind.MESSAGE)]


def most_at_once(lines):
    running, most = set(), 0
    for line in lines:
        (running.add if line["event"] == "start" else running.discard)(line["instance"])
        most = max(most, len(running))
    return most


@pytest.fixture
def start(atpd):
    """Return a function that starts a daemon with one loop."""
    return lambda *args, **options: atpd(*HERE, *args, processes=1, **options).ready()


def test_attempts_wait_beside_each_other_within_the_limits_of_their_types(start, tmp_path):
    """Types without a concurrency run in processes meanwhile."""
    wide, narrow, limited = (Record(tmp_path / name) for name in ("wide", "narrow", "limited"))
    waiting = types.wait.enqueue_many([{"path": str(wide), "seconds": 2}] * 120)
    few = types.three.enqueue_many([{"path": str(narrow), "seconds": 0.1}] * 12)
    plain = [tasks_daemon.note.enqueue(path=str(tmp_path / "plain"), number=n) for n in range(20)]
    daemon = start()
    assert set(ended(plain)) == {State.FINISHED}
    assert plain[0].log.get(kind=Event.FINISH).who.endswith("worker 0")
    assert not any(instance.refresh_from_db() or instance.is_terminal for instance in waiting)
    assert set(ended([*waiting, *few])) == {State.FINISHED}
    assert 50 < most_at_once(wide.lines()) <= 100
    assert most_at_once(narrow.lines()) == 3
    assert [line["pid"] for line in wide.lines()] == daemon.loops() * 240
    assert all(story(instance) == ONCE for instance in waiting)
    queue.limit(types.three, max_running=2)
    counted = types.three.enqueue_many([{"path": str(limited), "seconds": 0.1}] * 8)
    assert set(ended(counted)) == {State.FINISHED}
    assert most_at_once(limited.lines()) == 2


def test_each_attempt_keeps_what_it_says_its_language_and_its_steps(start, record):
    """An error of a task that nobody awaited is in the log; who returns in the grace has ended."""
    languages = ["de", "fr", "it", "es"] * 10
    instances = [
        types.talk.enqueue(name=f"n{number}", language=language)
        for number, language in enumerate(languages)
    ]
    steps = types.steps.enqueue(path=str(record))
    child_fails = types.child_fails.enqueue()
    late = types.too_long.enqueue(path=str(record), how="returns")
    start()
    assert set(ended([*instances, steps, child_fails, late])) == {State.FINISHED}
    for number, (instance, language) in enumerate(zip(instances, languages, strict=True)):
        name = f"n{number}"
        assert sorted(messages(instance)) == [
            f"{name} ends in {language}",
            f"shop: {name} in a child",
            f"shop: {name} in a thread",
            f"shop: {name} speaks {language}",
        ]
        instance.refresh_from_db()
        assert instance.progress_message == name
        assert instance.response.value == {"name": name}
        [file] = instance.response.files
        assert file["name"] == f"{name}.txt"
    assert steps.response.value == {"first": 1, "second": None}
    assert len(record.lines("first")) == 1
    [message] = messages(child_fails)
    assert "a task of the handler raised" in message
    assert "ValueError: of a child" in message
    assert late.response.value == {"saved": True}


def test_process_keeps_nothing_of_attempts_that_have_ended(start, record):
    inputs = {"path": str(record), "seconds": 0}
    instances = [types.leave_tasks.enqueue(path=str(record))]
    instances += types.in_thread.enqueue_many([inputs] * 150)
    start()
    assert set(ended(instances)) == {State.FINISHED}
    assert len(record.lines("cancelled")) == 1
    found = types.count.enqueue()
    assert ended([found]) == [State.FINISHED]
    assert found.response.value == {"lanes": 1}


def test_attempts_with_the_orm_share_few_connections(start):
    """A tenth of them fails. A transaction that one left open before is lost, and no other."""
    inputs = [{"name": f"g{n % 7}", "fails": n % 10 == 0} for n in range(400)]
    bad = types.leave_open.enqueue()
    beside = types.orm.enqueue_many(inputs[1:10])
    daemon = start()
    assert ended([bad, *beside]) == [Reason.ERROR, *[State.FINISHED] * 9]
    instances = types.orm.enqueue_many(inputs)
    most, loop = 0, the_loop(daemon)

    def look():
        nonlocal most
        most = max(most, connections_of(loop))
        return not Instance.objects.exclude(state__in=[State.FINISHED, State.FAILED]).exists()

    wait_for(look)
    wanted = [Reason.FATAL if given["fails"] else State.FINISHED for given in inputs]
    assert ended(instances) == wanted
    assert Group.objects.count() == 7
    assert 1 <= most <= 8
    assert daemon.loops() == [loop]


def connections_of(pid):
    """Return how many connections a process has to the queue's database."""
    if connection.vendor == "sqlite":
        name = str(connection.settings_dict["NAME"])
        links = [os.path.join(f"/proc/{pid}/fd", each) for each in os.listdir(f"/proc/{pid}/fd")]
        return sum(os.path.realpath(link) == os.path.realpath(name) for link in links)
    return ask("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s", f"%{pid}%")


ODD = {
    "exit": "SystemExit: 3",
    "cancels itself": "CancelledError",
    "pauses": "an attempt of a Type with a concurrency cannot pause",
}


def test_late_and_odd_attempts_end_alone(start, record):
    """Though one with a longer time-out has started before them."""
    daemon = start()
    loop = the_loop(daemon)
    longer = types.wait.enqueue(path=str(record), seconds=60)
    record.wait_for("start")
    late = {
        how: types.too_long.enqueue(path=str(record), how=how)
        for how in ("waits", "thread", "other thread", "raises")
    }
    odd = {how: types.odd.enqueue(how=how) for how in ODD}
    child_exits = types.odd.enqueue(how="child exits")
    assert set(ended(late.values())) == {Reason.STALE}
    for how, instance in late.items():
        lost = instance.log.get(kind=Event.EXPIRE)
        assert lost.message.startswith("its time-out of 0.5 s has passed")
        assert ("not in time" in lost.message) == (how == "raises")
        assert lost.detail == TIMEOUT
    assert sorted(line["how"] for line in record.lines("cancelled")) == sorted(late)
    # What it does in a thread is part of the attempt.
    assert len(record.lines("thread ended")) == 1
    assert set(ended(odd.values())) == {Reason.ERROR}
    for how, words in ODD.items():
        assert words in odd[how].log.get(kind=Event.FAIL).message
    assert ended([child_exits]) == [State.FINISHED]
    longer.refresh_from_db()
    assert (longer.state, longer.attempt) == (State.RUNNING, 1)
    assert daemon.loops() == [loop]


def test_cancel_release_and_stop_end_the_coroutine_and_no_other(start, record):
    """Also one that waits for a thread."""
    one, two, other = types.wait.enqueue_many([{"path": str(record), "seconds": 60}] * 3)
    busy = types.in_thread.enqueue_many([{"path": str(record), "seconds": 3}] * 8)
    daemon = start()
    loop = the_loop(daemon)
    wait_for(lambda: Instance.objects.filter(state=State.RUNNING).count() == 11)
    queued = types.in_thread.enqueue(path=str(record), seconds=0)
    wait_for(lambda: Instance.objects.filter(state=State.RUNNING).count() == 12)
    queue.cancel(queued)
    queue.cancel(one)
    assert ended([queued, one]) == [Reason.CANCELLED] * 2
    queue.release(two)
    record.wait_for("start", 4)
    assert "release→ACCEPTED 1" in story(two)
    assert set(ended(busy)) == {State.FINISHED}
    assert len(record.lines("ran")) == 8
    assert daemon.loops() == [loop]
    other.refresh_from_db()
    assert (other.state, other.attempt) == (State.RUNNING, 1)
    daemon.signal(signal.SIGTERM)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    other.refresh_from_db()
    assert other.state == State.ACCEPTED
    assert daemon.facts("loop_killed") == []


@pytest.mark.slow
def test_bad_attempts_are_charged_and_those_beside_them_run_again(start, record):
    """The row of the daemon shows what blocks a loop."""
    good = types.wait.enqueue_many([{"path": str(record), "seconds": 3}] * 20)
    daemon = start(settings={"RENEW_EVERY": 0.2})
    record.wait_for("start", 20)
    bad = {}
    for how in (each for each in WORDS if each != "block"):
        bad[how] = types.bad.enqueue(how=how)
        assert ended([bad[how]]) == [Reason.STALE]
    bad["block"] = types.bad.enqueue(how="block")

    def blocks():
        workers = Daemon.objects.get().workers
        return any(w.get("blocks") and w["instance"] == str(bad["block"].uuid) for w in workers)

    wait_for(blocks, what="a row that shows it")
    assert set(ended([bad["block"], *good])) == {Reason.STALE, State.FINISHED}
    assert not any(instance.restarts for instance in good)
    assert never_twice(record.lines())
    for how, instance in bad.items():
        [lost] = instance.log.filter(kind=Event.EXPIRE)
        assert re.match(WORDS[how], lost.message)
    stack = bad["block"].log.get(kind=Kind.STACK)
    assert stack.message.count("in bad") == 1
    assert len(daemon.facts("loop_killed") + daemon.facts("loop_died")) == len(WORDS)
    [released, *_] = good[0].log.filter(kind=Event.RELEASE)
    guilty = [str(instance.uuid) for instance in bad.values()]
    assert any(f"ended because of the attempt of {uuid}" in released.message for uuid in guilty)


# If another attempt became late first, this one is charged for the block.
LATE = "its time-out of 1 s has passed|it blocked its loop for "
WORDS = {
    "exit": "its worker exited with status 3",
    "thread": "its worker exited with status 4",
    "crash": "its worker was ended by SIGSEGV",
    "spin": LATE,
    "block": LATE,
    "memory": "its worker was ended by SIGKILL",
    "stubborn": "its time-out of 1 s has passed",
}


def never_twice(lines):
    """Tell whether no Instance was at work in two attempts at once, by the handlers' record."""
    at_work = {}
    for line in lines:
        if line["event"] == "start":
            before = at_work.get(line["instance"])
            if before is not None and before == line["pid"]:
                return False
            at_work[line["instance"]] = line["pid"]
        else:
            del at_work[line["instance"]]
    return True


def test_attempts_of_a_loop_that_was_killed_from_outside_are_lost_once(start, record):
    instances = types.wait.enqueue_many([{"path": str(record), "seconds": 1}] * 5)
    daemon = start()
    record.wait_for("start", 5)
    os.kill(the_loop(daemon), signal.SIGKILL)
    assert set(ended(instances)) == {State.FINISHED}
    assert [instance.restarts for instance in instances] == [1] * 5
    for instance in instances:
        lost = instance.log.get(kind=Event.EXPIRE).message
        how = "was ended by SIGKILL, sent by another process or, when memory ran out, by the kernel"
        assert tells(lost, attempt_messages.loop_died(how))


@pytest.mark.filterwarnings("ignore:.*[Pp]olicy:DeprecationWarning")
def test_loop_runs_on_the_event_loop_of_the_policy(tmp_path):
    made = []

    class Policy(type(asyncio.get_event_loop_policy())):
        def new_event_loop(self):
            made.append(super().new_event_loop())
            return made[-1]

    folders = SimpleNamespace(scratch=tmp_path)
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        inside.Loop(0, [], inside.Inherited(inside.Page(0, loops=1), None, folders, None))
    finally:
        asyncio.set_event_loop_policy(before)
    [loop] = made
    loop.close()


def test_end_is_told_though_a_place_has_tasks_ahead(tmp_path):
    """The dispatcher may have taken them back, which the loop learns later."""
    ours, theirs = inside.Channel.pair()
    folders, options = SimpleNamespace(scratch=tmp_path), inside.Options(processes=1)
    shared = inside.Page(1, loops=1), options, folders, None, inside.NEVER
    made = inside.Loop(0, [(0, theirs, None)], inside.Inherited(*shared))
    made._waiting = 3
    loop = made._loop
    loop.call_soon(made._ended, made._places[0])
    loop.add_reader(ours.fileno(), loop.stop)
    loop.call_later(DEADLINE, loop.stop)
    loop.run_forever()
    loop.close()
    assert [type(message) for message in ours.drain()] == [inside.Look]
    for end in (ours, theirs):
        end.close()


def test_type_that_needs_a_loop_is_left_out_without_loops():
    left_out = inside.Options(loops=0, labels={"tests": "loops"}).left_out(registry)
    assert left_out["loops.wait"] == ["loops (--loops 0)"]


def test_daemon_that_may_not_open_files_enough_for_its_loops_does_not_start(transactional_db):
    command = manage("atpd", *HERE, "--loops", "64")
    limited = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
        f"os.execv({command[0]!r}, {command!r})\n"
    )
    done = run(sys.executable, "-c", limited)
    assert done.returncode == 1
    assert "open files, and this process may have 1024 (ulimit -Hn)" in done.stderr


def test_loop_is_replaced_when_its_attempts_have_ended(start, record):
    instances = types.wait.enqueue_many([{"path": str(record), "seconds": 0.2}] * 60)
    daemon = start("--max-tasks-per-worker", "20")
    assert set(ended(instances)) == {State.FINISHED}
    assert all(story(instance) == ONCE for instance in instances)
    assert len(daemon.facts("loop_retired")) >= 1
    assert daemon.facts("loop_died") == []


def ticks_of(record, pid):
    return sum(line["pid"] == pid for line in record.lines("tick")[-1000:])


@pytest.mark.long
def test_no_two_attempts_are_at_work_at_once_in_200_kills(start, record):
    """G1, G3: by the handlers' own record. Each kill hits a loop that is at work."""
    instances = types.tick.enqueue_many([{"path": str(record)}] * 300)
    daemon = start()
    at_random, killed = random.Random(7), set()
    while len(killed) < 200:
        loop = the_loop(daemon)
        if loop in killed:
            continue
        count = at_random.randint(1, 400)
        wait_for(lambda pid=loop, count=count: ticks_of(record, pid) >= count)
        os.kill(loop, signal.SIGKILL)
        killed.add(loop)
        instances = [*instances, *types.tick.enqueue_many([{"path": str(record)}] * 10)]
    assert set(ended(instances, 5 * DEADLINE)) == {State.FINISHED}
    at_work = {}
    for line in record.lines():
        first, last = at_work.setdefault(line["instance"], {}).get(line["pid"], (line["time"],) * 2)
        at_work[line["instance"]][line["pid"]] = min(first, line["time"]), max(last, line["time"])
    assert len(at_work) == len(instances)
    assert sum(len(spans) for spans in at_work.values()) > len(instances) + 200
    for spans in map(sorted, map(dict.values, at_work.values())):
        assert all(ended < begun for (_, ended), (begun, _) in itertools.pairwise(spans))
