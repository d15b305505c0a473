"""Tasks run: every outcome, every kind of response, what a handler can say."""

import os
from pathlib import Path

import pytest

from atp import queue
from atp.models import Daemon, Response, Task
from atp.rows.log import Kind
from atp.states import Reason, State
from atp.words import attempt_messages
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import tells
from .harness import story


def drain(atpd, **options):
    daemon = atpd("--drain", **options)
    assert daemon.wait() == 0, daemon.log_path.read_text()
    return daemon


def test_rfc_14_demonstration(atpd):
    """The example of RFC 14: register, enqueue, poll by identifier, read, delete."""
    [declared] = [types.sequence_sum.registration()]
    assert (declared.timeout.total_seconds(), declared.retention.total_seconds()) == (60, 600)
    assert declared.max_restarts == 3
    queue.register(types.sequence_sum)
    types.sequence_sum.using(identifier="Task001").enqueue(1, 2, 3, 4, 5)
    assert queue.size("SequenceSum") == 1
    atpd(processes=1)

    instance = queue.get(type="SequenceSum", identifier="Task001").wait(DEADLINE)

    assert instance.state == State.FINISHED
    assert queue.response(instance).value == 15
    assert story(instance) == [
        "enqueue→ACCEPTED 0",
        "claim→SCHEDULED 1",
        "start→RUNNING 1",
        "finish→FINISHED 1",
    ]
    assert "adding 5 terms" in [row.message for row in instance.log]
    assert queue.delete(instance) == 1
    assert queue.size() == 0
    queue.unregister("SequenceSum")


@pytest.mark.parametrize(
    ("kind", "content_type", "value"),
    [
        ("json", "application/json", {"number": 10}),
        ("text", "text/plain; charset=utf-8", "schöne Grüße"),
        ("bytes", "application/octet-stream", b"\x00\x01" * 10),
        ("png", "image/png", b"\x89PNG" + b"\x00" * 10),
    ],
)
def test_responses(atpd, kind, content_type, value):
    instance = types.answer.enqueue(kind=kind)
    drain(atpd, processes=1)
    response = queue.response(instance)
    assert (response.content_type, response.value) == (content_type, value)
    assert response.file == ""


def test_no_response(atpd):
    instance = types.answer.enqueue(kind="none")
    drain(atpd, processes=1)
    assert instance.wait(0).state == State.FINISHED
    assert queue.response(instance) is None


def test_large_response_is_stored_as_a_file(atpd, media):
    instance = types.answer.enqueue(kind="png", size=300_000)
    drain(atpd, processes=1)
    response = Response.objects.get(instance=instance)
    assert response.data is None
    assert response.size == 300_004
    assert (media / response.file).stat().st_size == 300_004
    assert response.value.startswith(b"\x89PNG")
    queue.delete(instance.wait(0))
    assert not list(media.rglob("*-response"))


def test_large_inputs_reach_the_handler(atpd):
    """What is larger than a packet travels another way."""
    words = "ö" * 300_000
    instance = types.error.enqueue(words=words)
    drain(atpd, processes=1)
    assert instance.wait(0).reason == Reason.ERROR
    message = instance.log.last().message
    assert "ValueError: öööö" in message
    assert len(message) < 10_000


@pytest.mark.parametrize(
    ("task_type", "inputs", "reason", "words"),
    [
        (types.error, {}, Reason.ERROR, "ValueError: went wrong"),
        (types.fatal, {}, Reason.FATAL, "no such scene"),
        (types.leave, {}, Reason.ERROR, "SystemExit: 3"),
        (types.answer, {"kind": "unserializable"}, Reason.FATAL, "builtins.object"),
    ],
)
def test_failures(atpd, task_type, inputs, reason, words):
    """A failed Instance says why, and costs neither worker nor pool (G5)."""
    instance = task_type.enqueue(**inputs)
    after = types.pid.enqueue()
    daemon = drain(atpd, processes=1)
    instance.wait(0)
    assert (instance.state, instance.reason) == (State.FAILED, reason)
    assert words in instance.log.last().message
    assert after.wait(0).state == State.FINISHED
    assert not daemon.facts("worker_died")


@pytest.mark.parametrize("how", ["retry", "raise"])
def test_retries(atpd, record, how):
    """An attempt that raises, or asks for it, is tried again within its budget (G2)."""
    instance = types.retry.enqueue(path=str(record), failures=2, how=how)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert instance.state == State.FINISHED
    assert (instance.attempt, instance.retries, instance.restarts) == (3, 2, 0)
    assert len(record.lines("start")) == 3
    told = [row.message for row in instance.log.filter(kind="retry")]
    assert all(("Traceback" in message) == (how == "raise") for message in told)


def test_retries_used_up(atpd, record):
    instance = types.retry.enqueue(path=str(record), failures=9)
    atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.reason, instance.retries) == (Reason.ERROR, 3)
    assert len(record.lines()) == 4
    assert tells(instance.log.last().message, attempt_messages.retries_used_up(3, 3))


def test_handler_speaks(atpd, media):
    """Log, captured logging, progress, scratch directory and published files."""
    instance = types.talk.enqueue()
    drain(atpd, processes=1, settings={"LOG_LEVEL": "INFO"})
    instance.wait(0)
    messages = {row.message: row.level for row in instance.log if not row.event}
    assert messages == {"from the context": 30, "shop: from logging 0": 20}
    assert instance.progress == 1.0
    assert instance.progress_message == "a quarter"
    response = queue.response(instance)
    [published] = response.files
    assert published["name"] == "draft.txt"
    assert published["size"] == 5
    assert (media / published["path"]).read_text() == "draft"
    assert not Path(response.value["scratch"]).exists()


def test_runaway_logging_is_capped(atpd, media):
    instance = types.talk.enqueue(lines=50)
    drain(atpd, processes=1, settings={"MAX_LOG_RECORDS": 10})
    messages = [row for row in instance.log if not row.event]
    assert len(messages) == 11
    assert (messages[2].kind, messages[2].detail) == (Kind.LEFT_OUT, "41")
    assert messages[-1].message.endswith("49")


def test_progress_is_seen_while_it_runs(atpd, flag):
    instance = types.progress.enqueue(until=str(flag))
    atpd(processes=1)

    def half():
        instance.refresh_from_db()
        return instance.progress == 0.5

    wait_for(half)
    assert (instance.state, instance.progress_message) == (State.RUNNING, "half")
    wait_for(lambda: str(instance.uuid) in [w["instance"] for w in Daemon.objects.get().workers])
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED


def test_drain_leaves_nothing_behind(atpd, record):
    types.note.enqueue_many({"path": str(record), "number": n} for n in range(50))
    daemon = drain(atpd)
    assert set(record.numbers("ran").values()) == {1}
    assert Task.objects.count() == Daemon.objects.count() == 0
    assert daemon.facts("daemon_stopped")[0]["finished"] == 50


def test_only_the_types_asked_for(atpd, record):
    wanted = types.note.enqueue(path=str(record))
    excluded = types.noop.enqueue()
    other = types.sequence_sum.enqueue(1)
    daemon = atpd("--drain", "--type", "daemon.*", "--exclude", "*.noop", processes=1)
    assert daemon.wait() == 0
    states = [i.state for i in (wanted, excluded, other) if i.refresh_from_db() is None]
    assert states == [State.FINISHED, State.ACCEPTED, State.ACCEPTED]


def test_a_time_out_and_retries_of_its_own(atpd, tmp_path):
    """G5: a daemon goes by what one Instance was given, not by its Type."""
    never = str(tmp_path / "never")
    late = types.wait.using(timeout=0.3).enqueue(path=str(tmp_path / "late"), until=never)
    failed = types.retry.using(max_retries=0).enqueue(path=str(tmp_path / "failed"), how="error")
    drain(atpd, processes=2)
    assert (late.wait(0).reason, late.restarts) == (Reason.STALE, 4)
    assert (failed.wait(0).reason, failed.retries) == (Reason.ERROR, 0)


def test_a_handler_that_reads_its_standard_input(atpd):
    """There is nothing: that of the daemon may be a pipe to which nobody writes (G5)."""
    ours, theirs = os.pipe()
    os.write(theirs, b"for the daemon, if for anybody")
    try:
        atpd(processes=1, stdin=ours)
        instance = types.reads.enqueue().wait(60)
        assert queue.response(instance).value == ["", ""]
    finally:
        os.close(ours)
        os.close(theirs)
