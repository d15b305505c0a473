"""Tasks run: every outcome, every kind of response, what a handler can say."""

import base64
import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone, translation

from atp import messages, queue
from atp.models import Daemon, Instance, Kind, Response
from atp.operations.registry import declared_hooks
from atp.states import Reason, State
from atp.webhooks import webhook
from tests.app import tasks_async
from tests.app import tasks_daemon as types
from tests.app.middleware import tenant
from tests.app.tasks_hooks import hook, hooked
from tests.app.tasks_middleware import carried, carried_async, carried_on, carried_transactional
from tests.helpers import DEADLINE, wait_for

from ..nonsense import tells
from ..receiver import receiver
from .harness import Record, story
from .scenario import ONCE, wait_until
from .test_cancel import assert_cancelled, cancel


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
    assert story(instance) == ONCE
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


def test_response_log_progress_and_files_of_a_handler_are_kept(atpd, media):
    instances = {kind: types.answer.enqueue(kind=kind) for kind in RESPONSES}
    none, large = types.answer.enqueue(kind="none"), types.answer.enqueue(kind="png", size=300_000)
    talking, runaway = types.talk.enqueue(), types.talk.enqueue(lines=50)
    drain(atpd, processes=1, settings={"LOG_LEVEL": "INFO", "MAX_LOG_RECORDS": 10})
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

    talking.wait(0)
    messages = {row.message: row.level for row in talking.log if not row.event}
    assert messages == {"from the context": 30, "shop: from logging 0": 20}
    assert (talking.progress, talking.progress_message) == (1.0, "a quarter")
    response = queue.response(talking)
    [published] = response.files
    assert (published["name"], published["size"]) == ("draft.txt", 5)
    assert (media / published["path"]).read_text() == "draft"
    assert not Path(response.value["scratch"]).exists()
    messages = [row for row in runaway.log if not row.event]
    assert len(messages) == 11
    assert (messages[2].kind, messages[2].detail) == (Kind.LEFT_OUT, "41")
    assert messages[-1].message.endswith("49")


def test_failures_say_why_and_are_retried_within_their_budget(atpd, tmp_path):
    """G2, G5: they cost neither worker nor pool."""
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
    records = {how: Record(tmp_path / how) for how in ("retry", "raise", "used up")}
    retried = {
        how: types.retry.enqueue(path=str(record), how=how, failures=9 if how == "used up" else 2)
        for how, record in records.items()
    }
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
    used_up = retried.pop("used up").wait(0)
    for how, instance in retried.items():
        assert instance.wait(0).state == State.FINISHED
        assert (instance.attempt, instance.retries, instance.restarts) == (3, 2, 0)
        assert len(records[how].lines("start")) == 3
        told = [row.message for row in instance.log.filter(kind="retry")]
        assert all(("Traceback" in message) == (how == "raise") for message in told)
    assert (used_up.reason, used_up.retries) == (Reason.ERROR, 3)
    assert len(records["used up"].lines()) == 4
    assert tells(used_up.log.last().message, messages.retries_used_up(3, 3))


def test_progress_and_worker_are_shown_while_a_task_runs(atpd, flag):
    """G5: and no task finds anything on the standard input of its daemon."""
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


# Hooks


SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def crm():
    with receiver(SECRET) as made:
        yield made
    declared_hooks.forget()


def test_hooks_of_a_killed_task_reach_a_receiver_that_was_away(atpd, crm, settings):
    """G1, G2."""
    target = {"url": crm.url, "secret": SECRET, "allow_http": True, "on": ["chaos.hooked"]}
    more = {"WEBHOOKS": {"crm": target}}
    settings.ATP = settings.ATP | more
    crm.down()
    made = hooked.enqueue(how="exit")
    atpd(settings=more)
    assert made.wait(DEADLINE).reason == Reason.STALE
    uuid = str(made.uuid)
    own, sent = (
        next(each for each in Instance.objects.of_type(type.identifier) if each.hook_of == uuid)
        for type in (hook, webhook)
    )
    facts = {"uuid": uuid, "type": "chaos.hooked", "state": "FAILED", "reason": "STALE"}
    assert queue.response(own.wait(DEADLINE)).value == facts
    wait_for(lambda: queue.get(sent.uuid).retries == 1, what="the first retry")
    crm.up()
    # Sooner than in ten seconds.
    queue.change(sent, due=timedelta(0))
    assert sent.wait(DEADLINE).state == State.FINISHED
    assert crm.ids() == {str(sent.uuid)}
    assert crm.verified(crm.received[-1])["data"]["uuid"] == uuid


# Middleware and context propagators


CARRIERS = [
    *("atp.middleware.Language", "atp.middleware.TimeZone"),
    "tests.app.middleware.Tenant",
]


def test_handler_has_the_context_of_its_enqueue_in_a_real_worker(atpd, settings):
    """Also in a transactional Type and in what a handler enqueues, but not in the next task."""

    def value(instance):
        instance.refresh_from_db()
        assert instance.state == "FINISHED", instance.log
        return queue.response(instance).value

    settings.ATP = settings.ATP | {"CARRIERS": CARRIERS}
    plain = carried.enqueue()
    token = tenant.set("esa")
    with translation.override("de"), timezone.override("Europe/Vienna"):
        made = [each.enqueue() for each in (carried, carried_async, carried_transactional)]
        on = carried_on.enqueue()
    tenant.reset(token)
    last = carried.using(priority=-1).enqueue()
    drain(atpd, processes=1, settings={"CARRIERS": CARRIERS})
    assert [value(each) for each in made] == [["de", "Europe/Vienna", "esa"]] * 3
    assert value(queue.get(value(on))) == ["de", "Europe/Vienna", "esa"]
    assert value(plain) == value(last) == ["en-us", "UTC", None]


# Handlers that are coroutine functions


def test_coroutines_return_raise_and_use_the_connection_of_their_worker(atpd, record):
    """G5, G7: also in a transaction, in steps, and when it cancels itself."""
    gather, orm = tasks_async.gather.enqueue(count=4), tasks_async.orm.enqueue(name="readers")
    good = tasks_async.together.enqueue(name="kept")
    bad = tasks_async.together.enqueue(name="rolled back", fails=True)
    steps = tasks_async.steps.enqueue(path=str(record))
    raised = {
        "retry": "turned away",
        "raise": "LookupError: went wrong",
        "exit": "SystemExit: 3",
        "cancels itself": "CancelledError",
    }
    failed = {tasks_async.raises.enqueue(how=how): words for how, words in raised.items()}
    late = tasks_async.sleep.using(timeout=0.3).enqueue(path=str(record))
    daemon = drain(atpd, processes=1)
    assert queue.response(gather.wait(0)).value == {"sum": 6}
    assert "gathered" in [row.message for row in gather.log]
    assert queue.response(orm.wait(0)).value == {
        "made": "readers",
        "found": 1,
        "orm in main": True,
        "own": False,
    }
    assert queue.response(good.wait(0)).value == {"in transaction": True}
    assert bad.wait(0).reason == Reason.FATAL
    assert set(Group.objects.values_list("name", flat=True)) == {"readers", "kept"}
    assert queue.response(steps.wait(0)).value == {"charged": 1}
    assert len(record.lines("charged")) == 1
    for instance, words in failed.items():
        assert (instance.wait(0).reason, instance.retries) == (Reason.ERROR, 1)
        assert words in instance.log.transitions().last().message
    assert not daemon.facts("worker_died")
    assert (late.wait(0).reason, late.restarts) == (Reason.STALE, 4)


def test_cancelled_coroutine_ends_and_a_released_one_goes_back(atpd, tmp_path):
    """One that neither awaits nor checks is killed after its grace."""
    names = ["sleep", "stubborn", "looks"]
    records = {name: Record(tmp_path / name) for name in names}
    instances = {
        name: getattr(tasks_async, name).enqueue(path=str(records[name])) for name in names
    }
    daemon = atpd(processes=3)
    for record in records.values():
        record.wait_for("start")
    wait_until(State.RUNNING, instances["looks"])
    queue.release(instances["looks"])
    records["looks"].wait_for("start", 2)
    instances["looks"].refresh_from_db()
    assert (instances["looks"].retries, instances["looks"].lost) == (0, 0)
    for name, instance in instances.items():
        cancel(instance)
        assert_cancelled(instance, attempt=2 if name == "looks" else 1)
        last = instance.log.transitions().last().message
        is_killed = tells(last, messages.killed_after_grace(0.5))
        assert is_killed == (name == "stubborn"), name
    assert len(records["sleep"].lines("cleaned up")) == 1
    assert len(records["stubborn"].lines("cancelled")) == 1
    after = types.note.enqueue(path=str(tmp_path / "after"))
    assert after.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0
