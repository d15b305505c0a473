"""Tasks run: every outcome, every kind of response, what a handler can say."""

import os
from pathlib import Path

from atp import messages, queue
from atp.models import Daemon, Kind, Response, Task
from atp.states import Reason, State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from ..nonsense import tells
from .harness import Record, story


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


RESPONSES = {
    "json": ("application/json", {"number": 10}),
    "text": ("text/plain; charset=utf-8", "schöne Grüße"),
    "bytes": ("application/octet-stream", b"\x00\x01" * 10),
    "png": ("image/png", b"\x89PNG" + b"\x00" * 10),
}


def test_responses(atpd, media):
    """Small ones lie in the database, a large one is a file, and none is none."""
    instances = {kind: types.answer.enqueue(kind=kind) for kind in RESPONSES}
    none, large = types.answer.enqueue(kind="none"), types.answer.enqueue(kind="png", size=300_000)
    drain(atpd, processes=1)
    for kind, expected in RESPONSES.items():
        response = queue.response(instances[kind])
        assert (response.content_type, response.value) == expected
        assert response.file == ""
    assert none.wait(0).state == State.FINISHED
    assert queue.response(none) is None
    response = Response.objects.get(instance=large)
    assert (response.data, response.size) == (None, 300_004)
    assert (media / response.file).stat().st_size == 300_004
    assert response.value.startswith(b"\x89PNG")
    queue.delete(large.wait(0))
    assert not list(media.rglob("*-response"))


def test_failures(atpd, tmp_path):
    """A failed Instance says why, and costs neither worker nor pool (G5)."""
    never = str(tmp_path / "never")
    failures = [
        (types.error.enqueue(), Reason.ERROR, "ValueError: went wrong"),
        (types.fatal.enqueue(), Reason.FATAL, "no such scene"),
        (types.leave.enqueue(), Reason.ERROR, "SystemExit: 3"),
        (types.answer.enqueue(kind="unserializable"), Reason.FATAL, "builtins.object"),
        # What is larger than a packet travels another way.
        (types.error.enqueue(words="ö" * 300_000), Reason.ERROR, "ValueError: öööö"),
    ]
    after = types.pid.using(priority=-1).enqueue()
    # A daemon goes by what one Instance was given, not by its Type.
    late = types.wait.using(timeout=0.3).enqueue(path=str(tmp_path / "late"), until=never)
    failed = types.retry.using(max_retries=0).enqueue(path=str(tmp_path / "failed"), how="error")
    daemon = drain(atpd, processes=2)
    for instance, reason, words in failures:
        instance.wait(0)
        assert (instance.state, instance.reason) == (State.FAILED, reason)
        assert words in instance.log.last().message
        assert len(instance.log.last().message) < 10_000
    assert after.wait(0).state == State.FINISHED
    assert not daemon.facts("worker_died")
    assert (late.wait(0).reason, late.restarts) == (Reason.STALE, 4)
    assert (failed.wait(0).reason, failed.retries) == (Reason.ERROR, 0)


def test_retries(atpd, tmp_path):
    """An attempt that raises, or asks for it, is tried again within its budget (G2)."""

    def enqueued(name, **inputs):
        record = Record(tmp_path / name)
        return types.retry.enqueue(path=str(record), **inputs), record

    cases = [enqueued(how, failures=2, how=how) for how in ("retry", "raise")]
    used_up, lines = enqueued("used up", failures=9)
    atpd(processes=1)
    for instance, record in cases:
        assert instance.wait(DEADLINE).state == State.FINISHED
        assert (instance.attempt, instance.retries, instance.restarts) == (3, 2, 0)
        assert len(record.lines("start")) == 3
        told = [row.message for row in instance.log.filter(kind="retry")]
        assert all(("Traceback" in message) == ("raise" in str(record)) for message in told)
    assert (used_up.wait(DEADLINE).reason, used_up.retries) == (Reason.ERROR, 3)
    assert len(lines.lines()) == 4
    assert tells(used_up.log.last().message, messages.retries_used_up(3, 3))


def test_handler_speaks(atpd, media):
    """Log, captured logging, progress, scratch directory and published files; what is too much."""
    instance, runaway = types.talk.enqueue(), types.talk.enqueue(lines=50)
    drain(atpd, processes=1, settings={"LOG_LEVEL": "INFO", "MAX_LOG_RECORDS": 10})
    instance.wait(0)
    messages = {row.message: row.level for row in instance.log if not row.event}
    assert messages == {"from the context": 30, "shop: from logging 0": 20}
    assert (instance.progress, instance.progress_message) == (1.0, "a quarter")
    response = queue.response(instance)
    [published] = response.files
    assert (published["name"], published["size"]) == ("draft.txt", 5)
    assert (media / published["path"]).read_text() == "draft"
    assert not Path(response.value["scratch"]).exists()
    messages = [row for row in runaway.log if not row.event]
    assert len(messages) == 11
    assert (messages[2].kind, messages[2].detail) == (Kind.LEFT_OUT, "41")
    assert messages[-1].message.endswith("49")


def test_what_is_seen_while_it_runs(atpd, flag):
    """Its progress, and the worker that is at it.

    G5: there is nothing on its standard input, as on that of a daemon nobody may ever write.
    """
    ours, theirs = os.pipe()
    os.write(theirs, b"for the daemon, if for anybody")
    instance = types.progress.enqueue(until=str(flag))
    try:
        atpd(processes=2, stdin=ours)
        assert queue.response(types.reads.enqueue().wait(DEADLINE)).value == ["", ""]
    finally:
        os.close(ours)
        os.close(theirs)
    wait_for(lambda: instance.refresh_from_db() or instance.progress == 0.5)
    assert (instance.state, instance.progress_message) == (State.RUNNING, "half")
    wait_for(lambda: str(instance.uuid) in [w["instance"] for w in Daemon.objects.get().workers])
    flag.touch()
    assert instance.wait(DEADLINE).state == State.FINISHED


def test_drain_leaves_nothing_behind(atpd, record):
    """Of the Types that it was asked to serve."""
    types.note.enqueue_many({"path": str(record), "number": n} for n in range(50))
    others = types.noop.enqueue(), types.sequence_sum.enqueue(1)
    daemon = atpd("--drain", "--type", "daemon.*", "--exclude", "*.noop", processes=2)
    assert daemon.wait() == 0
    assert set(record.numbers("ran").values()) == {1}
    assert daemon.facts("daemon_stopped")[0]["finished"] == 50
    assert not Daemon.objects.exists()
    assert {(each.refresh_from_db() or each.state) for each in others} == {State.ACCEPTED}
    assert Task.objects.count() == 2
