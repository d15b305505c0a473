"""``manage.py atp …`` (docs/shell.md)."""

import io
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from atp import queue
from atp.management.commands.atp import Command
from atp.management.commands.atpd import Command as Atpd
from atp.models import Gate, Instance, LogRecord, Schedule, Type
from atp.reports import documents, overview
from atp.shell import arguments, enqueueing, present, selections, subcommands
from atp.shell.base import Subcommand, actor
from atp.states import Event, Reason, State
from atp.store.values import Move, ResponseData
from atp.verbs.registry import registry
from atp.words import wording

from . import environment
from .app import tasks_downstream, tasks_pause
from .app.tasks import echo
from .app.tasks_transactional import row
from .helpers import Thread, child_environment, manage, wait_for
from .populated import ESCAPE, HOSTILE, MARKUP, populate, world_in

DOCS = (Path(environment.ROOT) / "docs" / "shell.md").read_text()


def run(*args):
    """Return what ``manage.py atp`` prints, also where ``status`` tells of problems."""
    out = io.StringIO()
    try:
        call_command("atp", *args, stdout=out, stderr=io.StringIO())
    except CommandError as error:
        if args[:1] != ("status",) or not str(error).startswith("Problems: "):
            raise
    return out.getvalue()


def document(*args):
    return json.loads(run(*args, "--json"))


def latest():
    return Instance.objects.latest("pk")


@pytest.fixture
def world(db, tmp_path):
    with world_in(tmp_path) as world:
        yield world


@pytest.fixture
def full(world):
    return populate(world)


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# What it prints


def calls(full):
    """One call of each subcommand that works."""
    queue.register(tasks_downstream.call)
    full.tailer()
    return {
        "status": ["status"],
        "check": ["check"],
        "statistics": ["statistics", "--recount"],
        "metrics": ["metrics"],
        "types": ["types"],
        "type": ["type", "tests.echo"],
        "list": ["list"],
        "show": ["show", str(full[State.FINISHED].uuid)],
        "why": ["why", str(full[State.ACCEPTED].uuid)],
        "enqueue": ["enqueue", "tests.echo", '{"a": 1}'],
        "change": ["change", str(full[State.ACCEPTED].uuid), "--priority", "3"],
        "redrive": ["redrive", str(full[State.FAILED].uuid)],
        "release": ["release", str(full[State.RUNNING].uuid)],
        "pause": ["pause", str(full[State.RUNNING].uuid)],
        "resume": ["resume", str(full[State.PAUSED].uuid)],
        "run-now": ["run-now", str(full[State.ACCEPTED].uuid)],
        "cancel": ["cancel", str(full[State.RUNNING].uuid)],
        "purge": ["purge"],
        "delete": ["delete", str(full[State.FINISHED].uuid)],
        "daemons": ["daemons"],
        "gates": ["gates"],
        "limits": ["limits"],
        "gate": ["gate", "hold", "--type", "tests.echo"],
        "limit": ["limit", "--type", "tests.echo", "--rate", "100/m"],
        "downstreams": ["downstreams"],
        "downstream": ["downstream", "bound", "relay", "--ceiling", "5"],
        "daemon": ["daemon", "quiet", "--all"],
        "schedules": ["schedules"],
        "schedule": ["schedule", "show", "of-the-code"],
        "tailers": ["tailers"],
        "tailer": ["tailer", "seek", "tests.tailer", "--shard", "a", "--position", "5"],
        "errors": ["errors"],
        "error": ["error", "show", full.error().name],
        "graphs": ["graphs"],
        "graph": ["graph", "show", str(full.graph().uuid)],
    }


ALL_NAMES = [subcommand.name for subcommand in subcommands()]
# Without the one that reads tables of others: see test_commands_import_beat.py.
NAMES = [name for name in ALL_NAMES if name != "import-beat"]


def keys(value):
    """Yield all keys of a document, those apart whose values are the project's own."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            is_of_schedule = key == "inputs" and "cron" in value
            if key not in ("value", "reasons", "signatures") and not is_of_schedule:
                yield from keys(item)


@pytest.mark.parametrize("name", NAMES)
def test_json_has_the_documented_keys(full, name):
    found = set(keys(document(*calls(full)[name])))
    assert found
    section = re.search(rf"^### `{name}`$(.*?)^##", DOCS, re.M | re.S).group(1)
    shared = DOCS[DOCS.index("## Documents") :]
    assert [key for key in sorted(found) if f"`{key}`" not in section + shared] == []


@pytest.mark.parametrize("name", NAMES)
def test_text_shows_nothing_that_moves_a_cursor(full, name):
    """G14: what is stored is never shown unescaped, and a terminal interprets too."""
    shown = run(*calls(full)[name])
    assert shown.strip()
    assert not [c for c in shown if not c.isprintable() and c != "\n"]


@pytest.mark.parametrize("name", ["status", "types", "list", "daemons", "schedules"])
def test_an_empty_queue_is_no_error(world, name):
    Schedule.objects.all().delete()
    Type.objects.all().delete()
    assert run(name).strip()
    assert document(name)


def test_docs_name_every_subcommand_and_option():
    parser = Command().create_parser("manage.py", "atp")
    [words] = [a for a in parser._actions if a.dest == "subcommand"]
    assert list(words.choices) == ALL_NAMES
    missing = [name for name in ALL_NAMES if f"### `{name}`" not in DOCS]
    for subparser in words.choices.values():
        options = [o for action in subparser._actions for o in action.option_strings]
        missing += [o for o in options if o not in ("-h", "--help") and f"`{o}" not in DOCS]
    assert missing == []


def test_status_counts(full):
    found = document("status")
    assert {name: found[name] for name in ("due", "later", "scheduled", "running", "paused")} == {
        "due": 0,
        "later": 1,
        "scheduled": 1,
        "running": 1,
        "paused": 1,
    }
    assert (found["finished"], found["failed"]) == (1, 1)
    [of_echo] = [counts for counts in found["types"] if counts["type"] == "tests.echo"]
    assert of_echo["reasons"] == {"ERROR": 1}
    assert found["oldest_due"] is None
    assert datetime.fromisoformat(found["next_due"]) > full.world.store.now() + timedelta(hours=2)
    assert "0 due, 1 later (the next in 3 h)" in run("status")


def test_status_tells_how_long_the_oldest_waits(full):
    run("enqueue", "tests.echo")
    type(full.world.task(latest().pk)).objects.filter(pk=latest().pk).update(
        due_at=full.world.store.now() - timedelta(minutes=3, seconds=5)
    )
    assert "1 due (the oldest for 3.1 min)" in run("status")


def test_daemons_tell_what_their_workers_do(full):
    [daemon] = document("daemons")["daemons"]
    assert daemon["condition"] == "alive"
    assert [worker["pid"] for worker in daemon["workers"]] == [11, 12]
    assert daemon["workers"][0]["instance"] == str(full[State.RUNNING].uuid)
    shown = run("daemons")
    assert str(full[State.RUNNING].uuid) in shown
    assert "alive" in run("status")


@pytest.mark.parametrize(("seconds", "condition"), [(2, "alive"), (30, "late")])
def test_a_daemon_that_misses_renewals_is_late(full, seconds, condition):
    row = full.host.row
    row.seen = full.world.store.now() - timedelta(seconds=seconds)
    row.save()
    assert document("daemons")["daemons"][0]["condition"] == condition


def test_a_daemon_without_a_lease_is_lost(full):
    full.host.lose_lease()
    assert document("status")["daemons"][0]["condition"] == "lost"
    assert "lost" in run("daemons")


def test_types_tell_what_came_too_late(world):
    """G4."""
    Type.objects.filter(identifier="tests.echo").update(late_writes=3)
    [found] = [row for row in document("types")["types"] if row["identifier"] == "tests.echo"]
    assert found["late_writes"] == 3
    assert re.search(r"tests\.echo .*\(late writes: 3\)", run("types"))


def test_types_tell_who_looks_after_them(world):
    given = {"downstream": "tiles", "owner": "terrain", "runbook": "https://wiki/relief"}
    Type.objects.filter(identifier="tests.echo").update(**given)
    told = "downstream: tiles; owner: terrain; runbook: https://wiki/relief"
    assert re.search(rf"tests\.echo .*\({told}\)", run("types"))
    assert run("type", "tests.echo").splitlines()[1:4] == told.split("; ")


def test_types_tell_what_is_held_and_limited(full):
    queue.register(echo)
    queue.hold("tests.echo")
    queue.drop("tests.echo", "books")
    queue.limit("tests.echo", max_running=2)
    queue.hold()
    told = r"tests\.echo .*\(held; 'books' dropped; 2 at a time\)"
    assert re.search(told, run("types"))
    [found] = [row for row in document("types")["types"] if row["identifier"] == "tests.echo"]
    assert found["controls"] == ["held", "'books' dropped", "2 at a time"]


def test_types_tell_whose_handler_is_here(world):
    Type.objects.filter(identifier="tests.add").delete()
    here = Type.objects.get(identifier="tests.echo")
    here.pk, here.identifier = None, "elsewhere.only"
    here.save()
    found = {row["identifier"]: row for row in document("types")["types"]}
    assert found["elsewhere.only"]["declared"] is False
    assert found["tests.add"]["registered"] is None
    assert found["tests.add"]["timeout"] == 60.0
    assert found["tests.echo"]["declared"]
    assert found["tests.echo"]["registered"]
    shown = run("types")
    assert re.search(r"elsewhere\.only .*\(not in this process\)", shown)
    assert re.search(r"tests\.add .*\(not registered yet\)", shown)


# list


def listed(*args):
    return [row["uuid"] for row in document("list", *args)["instances"]]


@pytest.mark.parametrize("state", State.values)
def test_list_by_state(full, state):
    assert listed("--state", state.lower()) == [str(full[state].uuid)]


def test_list_filters(full):
    failed = [str(full[State.FAILED].uuid)]
    assert listed("--reason", "error") == failed
    assert listed("--collection", "books") == failed
    assert listed("--identifier", MARKUP) == failed
    assert listed("--type", "tests.add") == [str(full[State.ACCEPTED].uuid)]
    assert listed("--created-by", "somebody") == [str(full[State.ACCEPTED].uuid)]
    without = Instance.objects.newest_first().filter(collection="")
    assert listed("--collection", "") == [str(each.uuid) for each in without]
    assert listed("--reason", "FATAL") == []
    assert listed("--state", "finished", "--type", "tests.add") == []


def test_list_pages_newest_first(full):
    everything = [str(i.uuid) for i in Instance.objects.newest_first()]
    assert listed() == everything
    found, page = [], document("list", "--limit", "2")
    while True:
        found += [row["uuid"] for row in page["instances"]]
        if page["next"] is None:
            break
        page = document("list", "--limit", "2", "--before", page["next"])
    assert found == everything
    assert f"--before {everything[1]}" in run("list", "--limit", "2")


# show


def test_show_tells_the_whole_story(full):
    shown = run("show", str(full[State.FAILED].uuid))
    assert "FAILED ERROR" in shown
    assert "enqueue → ACCEPTED" in shown
    assert "fail → FAILED: ERROR: Traceback" in shown
    assert r"ValueError: <script>alert('x')</script> \x1b]0;title\x07" in shown
    assert "number  7" in shown


def test_show_tells_a_traceback_once_and_without_the_frames_of_atp(world):
    host = world.host("tests.echo")
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/x/atp/daemon/worker/execution.py", line 59, in _outcome\n'
        "    return call()\n"
        '  File "/srv/shop/tasks.py", line 1, in f\n'
        "KeyError: 7"
    )
    instance = echo.enqueue()
    for said in (
        {"event": Event.RETRY, "message": trace, "delay": None},
        {
            "event": Event.FAIL,
            "message": f"{trace} (retries used up: 1 of 1)",
            "reason": Reason.ERROR,
        },
    ):
        [case] = host.claim(limit=1)
        for change in ({"event": Event.START}, said):
            move = Move(instance=case.instance, attempt=case.attempt, **change)
            assert host.record(move) == []
    shown = run("show", str(instance.uuid))
    assert shown.count("/srv/shop/tasks.py") == 1
    assert "KeyError: 7 (retries used up: 1 of 1) (with the traceback of #1)" in shown
    assert "execution.py" not in shown


def test_show_as_json(full):
    found = document("show", str(full[State.FINISHED].uuid))
    value = {"said": MARKUP, "number": 7}
    assert found["inputs"] == {"format": "json", "value": value, "carried": {}}
    assert found["response"]["value"] == {"said": MARKUP}
    assert found["response"]["files"][0]["content_type"] == "text/html"
    assert [r["event"] for r in found["log"]] == ["enqueue", "claim", "start", "", "finish"]
    assert found["log"][3]["message"] == HOSTILE
    assert found["task"] is None
    waiting = document("show", str(full[State.ACCEPTED].uuid))
    assert datetime.fromisoformat(waiting["task"]["due_at"]) > full.world.store.now()
    assert document("show", str(full[State.RUNNING].uuid))["task"]["daemon"] == "host:1"


def test_show_by_identifier_and_by_the_beginning_of_the_uuid(full):
    failed = str(full[State.FAILED].uuid)
    by_identifier = document("show", "--type", "tests.echo", "--identifier", MARKUP)
    assert by_identifier["uuid"] == failed
    assert document("show", failed[:-1].upper())["uuid"] == failed
    assert document("show", failed.replace("-", ""))["uuid"] == failed


def test_a_beginning_of_several_uuids_is_refused(full):
    for number, pk in enumerate(Instance.objects.values_list("pk", flat=True)[:2]):
        uuid_ = uuid.UUID(f"0123456789ab7000800000000000000{number}")
        Instance.objects.filter(pk=pk).update(uuid=uuid_)
    with pytest.raises(CommandError, match="beginning of more than one uuid"):
        run("show", "01234567")
    assert document("show", "01234567-89ab-7000-8000-000000000001")


def test_show_never_opens_a_pickle(full):
    """G14: no pickle unless asked for."""
    instance = full[State.ACCEPTED]
    type(instance.inputs).objects.filter(pk=instance.pk).update(format="pickle", data="evil")
    assert "a signed pickle, not opened here" in run("show", str(instance.uuid))
    found = document("show", str(instance.uuid))["inputs"]
    assert found == {"format": "pickle", "value": None, "carried": {}}


def test_show_survives_damaged_rows(full):
    instance = full[State.ACCEPTED]
    type(instance.inputs).objects.filter(pk=instance.pk).update(data='{"a": {"$date": "x"}, "')
    assert "inputs" in run("show", str(instance.uuid))
    type(instance.inputs).objects.filter(pk=instance.pk).update(data='{"a": {"$date": "x"}}')
    assert '"$date"' in run("show", str(instance.uuid))


def test_the_raw_response_to_stdout(full):
    assert run("show", str(full[State.FINISHED].uuid), "--response") == f'{{"said":"{MARKUP}"}}'


BYTES = bytes(range(256))


def test_the_raw_response_to_a_file(full, tmp_path):
    instance = full.finished(content_type="image/png", data=BYTES, size=256)
    target = tmp_path / "body"
    assert run("show", str(instance.uuid), "--response", str(target)) == ""
    assert target.read_bytes() == BYTES
    with pytest.raises(CommandError, match="not text"):
        run("show", str(instance.uuid), "--response")


def test_the_raw_response_is_bytes_in_a_pipe(full, capfdbinary, monkeypatch):
    instance = full.finished(content_type="image/png", data=BYTES, size=256)
    with open(1, "w", closefd=False) as stream:
        call_command("atp", "show", str(instance.uuid), "--response", stdout=stream)
    assert capfdbinary.readouterr().out == BYTES


def test_a_stored_response_is_read_from_its_file(full, media):
    from django.core.files.storage import default_storage

    (media / "atp").mkdir()
    (media / "atp" / "large").write_bytes(b"large")
    assert default_storage.exists("atp/large")
    details = {"content_type": "text/plain", "data": None, "size": 5}
    instance = full.finished(file="atp/large", **details)
    assert run("show", str(instance.uuid), "--response") == "large"
    gone = full.finished(file="atp/gone", **details)
    with pytest.raises(CommandError, match="cannot be read"):
        run("show", str(gone.uuid), "--response")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_text_only_and_escaped(full):
    """G14: a response cannot speak to the operator's terminal."""
    data = f"one{ESCAPE}\ntwo".encode()
    text = full.finished(content_type="text/plain", data=data, size=len(data))
    out = Terminal()
    call_command("atp", "show", str(text.uuid), "--response", stdout=out)
    assert out.getvalue() == "one\\x1b]0;title\\x07\ntwo\n"
    picture = full.finished(content_type="image/png", data=BYTES, size=256)
    with pytest.raises(CommandError, match="not for a terminal"):
        call_command("atp", "show", str(picture.uuid), "--response", stdout=Terminal())


# enqueue


@pytest.mark.parametrize(("attempts", "told"), [(1, ""), (3, "3 attempts; the last took ")])
def test_the_time_of_the_last_attempt_is_not_that_of_all(full, attempts, told):
    found = documents.instance(full[State.FINISHED]) | {"attempt": attempts}
    found["response"] = documents.response(None)
    assert f" after {told}" in enqueueing.Enqueue(None).text(found)


def test_gates_and_limits_are_listed(world):
    assert run("gates") == "All gates are open.\n"
    queue.hold("tests.echo", reason="disk full", by="ann")
    queue.limit("tests.echo", max_running=3)
    assert "disk full" in run("gates")
    assert document("gates") == document("gate")
    assert "tests.echo" in run("limits")
    assert document("limits")["limits"] == document("limit")["limits"]


def test_its_checks_leave_out_what_manage_check_shows():
    """A pattern that matches no Type is told by "check" and atpd, not before each command."""
    assert "atp" not in Command.requires_system_checks
    assert "atp" in Atpd.requires_system_checks


def test_enqueue_with_everything(world):
    run(
        *("enqueue", "tests.keyword", '{"path": "a", "scale": 2.5}'),
        *("--identifier", "A-1", "--priority", "-7", "--collection", "maps"),
        *("--run-after", "1h30m", "--start-before", "2d"),
    )
    instance = latest()
    assert instance.inputs.value == {"path": "a", "scale": 2.5}
    assert (instance.identifier, instance.priority, instance.collection) == ("A-1", -7, "maps")
    assert instance.created_by == actor()
    assert re.fullmatch(r"user .+ via shell", actor())
    now = world.store.now()
    assert abs(instance.task.due_at - now - timedelta(minutes=90)) < timedelta(minutes=1)
    assert abs(instance.start_before - now - timedelta(days=2)) < timedelta(minutes=1)
    assert instance.log.first().who == actor()


def test_enqueue_takes_the_defaults_of_its_type(world):
    run("enqueue", "tests.keyword", '{"path": "a"}')
    assert (latest().priority, latest().collection) == (5, "books")


@pytest.mark.parametrize("inputs", ["[1, 2, 3]", '{"*": [1, 2, 3]}'])
def test_enqueue_by_position(world, inputs):
    run("enqueue", "tests.add", inputs)
    assert latest().inputs.value == {"*": [1, 2, 3]}


def test_enqueue_from_stdin(world, monkeypatch):
    stdin(monkeypatch, '{"said": "ü", "at": {"$date": "2030-01-31"}}'.encode())
    run("enqueue", "tests.echo", "-")
    assert latest().inputs.value["at"].isoformat() == "2030-01-31"


def test_an_identifier_that_is_taken(full):
    failed = full[State.FAILED]
    with pytest.raises(CommandError, match="exists already"):
        run("enqueue", "tests.echo", "--identifier", MARKUP)
    found = document("enqueue", "tests.echo", "--identifier", MARKUP, "--existing", "return")
    assert (found["uuid"], found["state"]) == (str(failed.uuid), "FAILED")
    found = document("enqueue", "tests.echo", "--identifier", MARKUP, "--existing", "redrive")
    assert (found["uuid"], found["state"]) == (str(failed.uuid), "ACCEPTED")
    assert failed.log.last().who == actor()


def test_wait_fails_if_the_instance_did(full):
    again = ("enqueue", "tests.echo", "--identifier", MARKUP, "--existing", "return", "--wait")
    with pytest.raises(CommandError, match=r"FAILED: ERROR: ValueError") as caught:
        run(*again)
    assert caught.value.returncode == 1
    assert "\x1b" not in str(caught.value)
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("atp", *again, "--json", stdout=out)
    assert json.loads(out.getvalue())["state"] == "FAILED"


@pytest.mark.django_db(transaction=True)
def test_wait_gives_up_in_time(world):
    """The document is printed all the same."""
    out = io.StringIO()
    with pytest.raises(CommandError, match="still ACCEPTED") as raised:
        call_command("atp", "enqueue", "tests.echo", "--wait", "0.01", "--json", stdout=out)
    assert raised.value.returncode == enqueueing.STILL_LIVE
    assert json.loads(out.getvalue())["uuid"] == str(latest().uuid)


@pytest.mark.django_db(transaction=True)
def test_wait_tells_at_once_that_nobody_serves_it(world):
    err = io.StringIO()
    with pytest.raises(CommandError):
        call_command("atp", "enqueue", "tests.echo", "--wait", "0.01", stderr=err)
    assert err.getvalue() == f"{latest().uuid} waits. No daemon is alive.\n"


def test_an_interrupted_wait_leaves_the_instance_in_the_queue(world, monkeypatch):
    def interrupted(instance, timeout):
        raise KeyboardInterrupt

    monkeypatch.setattr(Instance, "wait", interrupted)
    with pytest.raises(CommandError, match="stays in the queue") as caught:
        run("enqueue", "tests.echo", "--wait")
    assert caught.value.returncode == 130
    assert latest().state == State.ACCEPTED


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("wait", [["--wait", "20"], []])
def test_an_instance_that_is_gone_at_its_end_has_finished(world, monkeypatch, wait):
    """A Type with retention=0 keeps no Instance that has FINISHED."""
    host = world.host("kit.nothing")
    place, name = (enqueueing, "_wait") if wait else (queue, "get")
    original = getattr(place, name)

    def late(*args):
        [case] = host.claim()
        host.move(case, Event.START)
        host.move(case, Event.FINISH)
        return original(*args)

    monkeypatch.setattr(place, name, late)
    assert "FINISHED" in run("enqueue", "kit.nothing", *wait)


@pytest.mark.django_db(transaction=True)
def test_wait_shows_the_response(world):
    host = world.host("tests.echo")

    def work():
        [case] = wait_for(host.claim)
        data = {"content_type": "application/json", "data": b'{"sum":3}', "size": 9}
        host.move(case, Event.START)
        host.move(case, Event.FINISH, response=ResponseData(**data))

    worker = Thread(work)
    shown = run("enqueue", "tests.echo", "--wait", "20")
    worker.result()
    assert "FINISHED" in shown
    assert '{"sum": 3}' in shown


# redrive, release, purge, delete


def test_redrive_says_who_did_it(full):
    """G6: each move is logged with its actor."""
    uuid_ = str(full[State.FAILED].uuid)
    assert document("redrive", uuid_[:-2]) == {"redriven": 1}
    assert full[State.FAILED].state == State.ACCEPTED
    assert full[State.FAILED].log.last().who == actor()


def test_redrive_of_uuids_is_all_or_none(full):
    failed, finished = str(full[State.FAILED].uuid), str(full[State.FINISHED].uuid)
    with pytest.raises(CommandError, match="cannot be redriven: it is FINISHED"):
        run("redrive", failed, finished)
    assert full[State.FAILED].state == State.FAILED


def test_redrive_of_a_selection(full):
    dead = [full.failed(reason) for reason in (Reason.FATAL, Reason.STALE, Reason.FATAL)]
    kept = full.failed(Reason.MISSED)
    assert document("redrive", "--type", "tests.add", "--yes") == {"redriven": 0}
    assert document("redrive", "--reason", "fatal", "--yes") == {"redriven": 2}
    assert document("redrive", "--all", "--yes") == {"redriven": 2}
    assert {queue.get(instance.uuid).state for instance in dead} == {State.ACCEPTED}
    assert queue.get(kept.uuid).state == State.FAILED
    assert document("redrive", "--reason", "missed", "--yes") == {"redriven": 1}


def test_redrive_goes_through_a_selection_in_chunks(full, monkeypatch):
    monkeypatch.setattr(selections, "CHUNK", 2)
    for _ in range(4):
        full.failed()
    assert document("redrive", "--all", "--yes") == {"redriven": 5}


@pytest.mark.parametrize(("answer", "redriven"), [("y\n", True), ("n\n", False), ("", False)])
def test_redrive_asks_at_a_terminal(full, monkeypatch, answer, redriven):
    asking = Terminal(answer)
    monkeypatch.setattr(sys, "stdin", asking)
    told = io.StringIO()
    if redriven:
        call_command("atp", "redrive", "--all", stdout=io.StringIO(), stderr=told)
    else:
        with pytest.raises(CommandError, match="Nothing was redriven"):
            call_command("atp", "redrive", "--all", stdout=io.StringIO(), stderr=told)
    assert "Instances selected: 1" in told.getvalue()
    assert (full[State.FAILED].state == State.ACCEPTED) == redriven


def test_release_asks_the_holder(full):
    uuid_ = str(full[State.RUNNING].uuid)
    [found] = document("release", uuid_)["instances"]
    assert (found["uuid"], found["state"]) == (uuid_, "RUNNING")
    assert "will hand it back" in found["outcome"]
    record = full[State.RUNNING].log.last()
    assert (record.message, record.who) == ("release requested", actor())
    with pytest.raises(CommandError, match="no daemon holds it"):
        run("release", str(full[State.ACCEPTED].uuid))


def test_run_now(full):
    """It is due at once; one that is due already is told so."""
    uuid_ = str(full[State.ACCEPTED].uuid)
    queue.change(full[State.ACCEPTED], postpone=timedelta(hours=1))
    assert run("run-now", uuid_) == f"{uuid_}: It is due now.\n"
    assert full[State.ACCEPTED].task.due_at <= overview.now()
    with pytest.raises(CommandError, match="is due already"):
        run("run-now", uuid_)
    with pytest.raises(CommandError, match="it is RUNNING, not ACCEPTED"):
        run("run-now", str(full[State.RUNNING].uuid))


def test_an_action_takes_all_that_are_named_or_none(full):
    running, waiting = full[State.RUNNING], full[State.ACCEPTED]
    with pytest.raises(CommandError, match="cannot be released"):
        run("release", str(running.uuid), str(waiting.uuid))
    assert full[State.RUNNING].task.request == ""


def test_cancel_of_what_waits_and_what_runs(full):
    """G6: each is logged with its actor."""
    waiting, running = full[State.ACCEPTED], full[State.RUNNING]
    found = document("cancel", str(waiting.uuid), str(running.uuid))
    assert found == {"cancelled": 1, "asked": 1}
    assert (full[State.ACCEPTED].reason, full[State.RUNNING].state) == ("CANCELLED", "RUNNING")
    assert {full[state].log.last().who for state in (State.ACCEPTED, State.RUNNING)} == {actor()}


def test_cancel_of_uuids_is_all_or_none(full):
    waiting, finished = str(full[State.ACCEPTED].uuid), str(full[State.FINISHED].uuid)
    with pytest.raises(CommandError, match="cannot be cancelled: it is FINISHED"):
        run("cancel", waiting, finished)
    assert full[State.ACCEPTED].state == State.ACCEPTED


def test_cancel_of_a_selection_takes_what_waits(full, monkeypatch):
    monkeypatch.setattr(selections, "CHUNK", 2)
    more = echo.using(collection="books").enqueue_many([{}] * 5)
    assert document("cancel", "--type", "tests.keyword", "--yes")["cancelled"] == 0
    found = document("cancel", "--type", "tests.echo", "--collection", "books", "--yes")
    assert found == {"cancelled": 5, "asked": 0}
    assert {queue.get(each.uuid).reason for each in more} == {Reason.CANCELLED}
    assert document("cancel", "--type", "tests.add", "--yes") == {"cancelled": 1, "asked": 0}
    assert full[State.ACCEPTED].reason == Reason.CANCELLED
    assert full[State.RUNNING].state == State.RUNNING


def test_what_comes_while_it_asks_is_not_selected(full, monkeypatch):
    echo.using(collection="books").enqueue_many([{}] * 3)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def readline(self):
            echo.using(collection="books").enqueue_many([{}] * 4)
            return "y"

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert "Instances cancelled: 3" in run("cancel", "--collection", "books")


def test_a_selection_leaves_out_types_of_atp(full):
    deletion = queue.delete_matching(type="tests.*", reason="ERROR")
    assert document("cancel", "--collection", "", "--yes")["cancelled"] >= 0
    assert queue.get(deletion.uuid).state == State.ACCEPTED
    queue.cancel(deletion)
    document("redrive", "--reason", "cancelled", "--yes")
    assert queue.get(deletion.uuid).state == State.FAILED
    found = document("redrive", "--reason", "cancelled", "--type", "atp.delete", "--yes")
    assert found == {"redriven": 1}


def test_all_is_cancelled_only_with_a_yes(full):
    with pytest.raises(CommandError, match=r"Nothing was cancelled: .* --yes"):
        run("cancel", "--all")
    assert "would be cancelled" in run("cancel", "--all", "--dry-run")
    assert "does it" in run("cancel", "--all", "--yes")


def test_a_dry_run_tells_what_the_command_would_do(full):
    """Of a selection that cancels what waits it tells no running ones."""
    found = document("cancel", "--type", "tests.*", "--dry-run")
    assert found["outcome"] == "1 would be cancelled: tests.add 1."
    assert document("cancel", "--type", "tests.*", "--yes") == {"cancelled": 1, "asked": 0}
    assert document("cancel", "--type", "tests.*", "--dry-run")["plan"]["count"] == 0
    by = {"by_type": {"tests.add": 1}, "by_collection": {"": 1}}
    assert found["plan"] == {"count": 1, **by, "cannot": {}}
    redriven = document("redrive", "--type", "tests.*", "--dry-run")["plan"]["count"]
    assert document("redrive", "--type", "tests.*", "--yes") == {"redriven": redriven}
    assert redriven
    with pytest.raises(CommandError, match="--dry-run is for a selection"):
        run("redrive", str(full[State.FINISHED].uuid), "--dry-run")


def test_a_dry_run_tells_what_cannot_be_redriven(full):
    """A live Instance has taken the unique key meanwhile."""
    failed, move = full.claimed(unique="key")
    move(Event.START)
    move(Event.FAIL, reason=Reason.ERROR)
    before = document("redrive", "--type", "tests.echo", "--dry-run")["plan"]
    live = echo.using(unique="key").enqueue()
    found = document("redrive", "--type", "tests.echo", "--dry-run")
    assert found["plan"]["count"] == before["count"] - 1
    assert "1 cannot be redriven: its unique key is taken." in found["outcome"]
    told = document("redrive", "--type", "tests.echo", "--yes")
    assert told == {"redriven": found["plan"]["count"]}
    assert queue.get(failed.uuid).state == State.FAILED
    assert queue.get(live.uuid).state == State.ACCEPTED


def test_a_pattern_that_matches_no_type_is_refused(full):
    with pytest.raises(CommandError, match=r"No Type 'tets\.\*' is registered"):
        run("cancel", "--type", "tets.*", "--yes")


def test_a_time_to_come_is_named_as_it_was_given(full):
    with pytest.raises(CommandError, match=r"created_before: .* is in the future"):
        run("cancel", "--all", "--created-before", "2999-01-01", "--yes")


def test_an_option_that_does_not_apply_is_no_option(full):
    with pytest.raises(CommandError, match="--cancel is for Instances by uuid"):
        run("delete", "--type", "tests.echo", "--cancel", "--yes")
    assert "does it" in run("redrive", "--type", "tests.*", "--canary", "0")


def test_an_empty_identifier_is_none(full):
    named = echo.using(identifier="x").enqueue()
    found = document("list", "--identifier", "")["instances"]
    assert str(named.uuid) not in [each["uuid"] for each in found]
    assert found


def test_one_instance_that_is_named_twice(full):
    uuid_ = str(full[State.ACCEPTED].uuid)
    assert document("cancel", uuid_, uuid_.replace("-", "")) == {"cancelled": 1, "asked": 0}
    assert document("delete", uuid_, uuid_.replace("-", ""))["removed"] == 1


def test_a_selection_is_read_in_few_queries(world, django_assert_max_num_queries):
    echo.using(collection="books").enqueue_many([{}] * 100)
    with django_assert_max_num_queries(30):
        run("cancel", "--collection", "books", "--yes")


@pytest.mark.parametrize("stream", ["closed", "full"])
def test_nobody_takes_what_it_tells(full, monkeypatch, stream):
    class Closed(io.StringIO):
        def flush(self):
            raise BrokenPipeError(32, "Broken pipe") if stream == "closed" else OSError(28, "full")

    monkeypatch.setattr(os, "dup2", lambda *args: None)
    with pytest.raises(CommandError, match="It was done, but its outcome could not be written"):
        call_command("atp", "enqueue", "tests.echo", stdout=Closed())
    assert latest().type.identifier == "tests.echo"


def test_no_stdin_is_no_terminal(full, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CommandError, match="needs --yes"):
        run("cancel", "--type", "tests.add")
    with pytest.raises(CommandError, match="inputs are"):
        run("enqueue", "tests.echo", "-")


def test_stored_text_does_not_control_the_terminal(full):
    Type.objects.filter(identifier="tests.echo").update(handler=f"a{ESCAPE}b")
    assert ESCAPE not in run("type", "tests.echo")
    queue.hold("tests.echo")
    Gate.objects.update(reason=f"a{ESCAPE}b")
    err = io.StringIO()
    with pytest.raises(CommandError):
        call_command("atp", "enqueue", "tests.echo", "--wait", "0.01", stderr=err)
    assert "waits" in err.getvalue()
    assert ESCAPE not in err.getvalue()


def test_somebody_is_quicker_with_one_of_a_selection(full, monkeypatch):
    made = echo.using(collection="books").enqueue_many([{}] * 3)
    cancel = queue.cancel

    def beaten(*chosen, by):
        cancel(chosen[1], by="somebody")
        return cancel(*chosen, by=by)

    monkeypatch.setattr(queue, "cancel", beaten)
    found = document("cancel", "--collection", "books", "--yes")
    assert found == {"cancelled": 3, "asked": 0}
    redrive = queue.redrive

    def overtaken(*chosen, by):
        redrive(chosen[1], by="somebody")
        return redrive(*chosen, by=by)

    monkeypatch.setattr(queue, "redrive", overtaken)
    assert document("redrive", "--reason", "cancelled", "--yes") == {"redriven": 3}
    assert {queue.get(each.uuid).state for each in made} == {State.ACCEPTED}


def test_change_says_what_and_who(full):
    waiting = full[State.ACCEPTED]
    due = waiting.task.due_at
    run("change", str(waiting.uuid), "--priority", "-3", "--collection", "a b", "--due", "0s")
    changed = full[State.ACCEPTED]
    assert (changed.priority, changed.collection) == (-3, "a b")
    assert changed.task.due_at < due
    last = changed.log.last()
    assert last.who == actor()
    assert last.message.endswith("→ now; priority 0 → -3; collection none → a b")


def test_change_of_the_due_time(full):
    uuid = str(full[State.ACCEPTED].uuid)
    [found] = document("change", uuid, "--due", "2h")["instances"]
    soon = timezone.now() + timedelta(hours=2)
    assert abs(datetime.fromisoformat(found["due_at"]) - soon) < timedelta(minutes=1)
    [later] = document("change", uuid, "--postpone", "30m")["instances"]
    delay = datetime.fromisoformat(later["due_at"]) - datetime.fromisoformat(found["due_at"])
    assert delay == timedelta(minutes=30)


def test_change_of_several_is_all_or_none(full):
    waiting = [full[State.ACCEPTED], echo.enqueue()]
    named = [str(each.uuid) for each in waiting]
    with pytest.raises(CommandError, match="cannot be changed: it is RUNNING"):
        run("change", *named, str(full[State.RUNNING].uuid), "--priority", "9")
    assert [queue.get(name).priority for name in named] == [0, 0]
    told = [f"{name}: It is changed.\n" for name in named]
    assert run("change", *named, "--priority", "9") == "".join(told)
    assert [queue.get(name).priority for name in named] == [9, 9]


def test_daemons_are_told(full):
    host = full.host
    other = full.world.host("tests.echo", name="elsewhere")
    assert run("daemon", "quiet", "host:1") == "Told to go quiet: 1\n  host:1\n"
    assert (host.row.request, other.row.request) == ("quiet", "")
    assert LogRecord.objects.about("daemon:host:1").last().who == actor()
    assert "running, soon quiet" in run("daemons")
    told = document("daemon", "quiet", "--all")
    assert told["told"] == ["elsewhere:1"]
    assert [left["daemon"] for left in told["left_alone"]] == ["host:1"]
    assert "has been told to go quiet" in told["left_alone"][0]["why"]
    assert document("daemon", "resume", "--host", "elsewhere")["told"] == ["elsewhere:1"]
    run("daemon", "stop", str(host.uuid), "elsewhere:1")
    assert (host.row.request, other.row.request) == ("stop", "stop")


def test_daemons_by_name_are_told_all_or_none(full):
    other = full.world.host("tests.echo", name="elsewhere")
    queue.command(other.uuid, "stop")
    with pytest.raises(CommandError, match="has been told to stop"):
        run("daemon", "quiet", "host:1", "elsewhere:1")
    assert full.host.row.request == ""


def test_pause_and_resume_say_what_comes_of_it(full):
    uuid = str(full[State.RUNNING].uuid)
    assert "paused when its handler next calls context.check() or progress()" in run("pause", uuid)
    assert re.search(r"asked to +pause\n", run("show", uuid))
    assert "runs on: the request to pause it is withdrawn" in run("resume", uuid)
    assert "asked to" not in run("show", uuid)
    assert "as soon as a worker's place is free" in run("resume", str(full[State.PAUSED].uuid))
    deaf = tasks_pause.deaf.enqueue(path="x", count=1)
    host = full.world.host("pause.deaf")
    [case] = host.claim()
    host.move(case, Event.START)
    assert "paused at once" in run("pause", str(deaf.uuid))


def test_pause_of_a_transactional_one(full):
    instance = row.enqueue(number=1)
    with pytest.raises(CommandError, match="is transactional"):
        run("pause", str(instance.uuid))


def test_a_worker_whose_task_is_paused(full):
    daemon = full.host.row
    daemon.workers[0]["paused"] = True
    daemon.save()
    assert re.search(r"tests\.echo .* paused\n", run("daemons"))
    [shown] = document("daemons")["daemons"]
    assert [worker["paused"] for worker in shown["workers"]] == [True, False]
    assert re.search(r"workers +busy +paused", run("status"))
    assert re.search(r"host:1 .* 2 +0 +1 ", run("status"))


def test_why_it_waits(full):
    """``status`` tells of gates, and ``show`` what they keep."""
    assert document("status")["notes"] == []
    queue.hold("tests.add", reason="the relay is down", by="ann")
    assert "- tests.add is held by ann (the relay is down): nothing" in run("status")
    shown = run("show", str(full[State.ACCEPTED].uuid))
    assert re.search(r"waits for +tests.add is held by ann \(the relay is down\)\.", shown)
    assert "waits for" not in run("show", str(full[State.RUNNING].uuid))


def test_how_long_it_ran_without_its_pause(full):
    now = full.world.store.now()
    instance, move = full.claimed()
    for event, age in ((Event.START, 60), (Event.PAUSE, 50), (Event.RESUME, 10)):
        move(event, time=now - timedelta(seconds=age))
    move(Event.FINISH, time=now)
    assert re.search(r"\nran +20 s\n", run("show", str(instance.uuid)))
    assert "\nran " not in run("show", str(full[State.FINISHED].uuid))


def test_purge_removes_what_retention_allows(full):
    """G12: and nothing else."""
    Type.objects.filter(identifier="tests.echo").update(retention=timedelta(days=1))
    Type.objects.filter(identifier="tests.keyword").update(retention=None)
    long_ago = full.world.store.now() - timedelta(days=2)
    Instance.objects.filter(state=State.FINISHED).update(finished=long_ago)
    assert document("purge", "--type", "tests.add")["value"] == 0
    found = document("purge")
    assert found["value"] == 1
    assert re.search("Types without retention: .*tests.keyword", found["outcome"])
    assert not Instance.objects.filter(state=State.FINISHED).exists()
    assert LogRecord.objects.about("type:tests.echo").last().who == actor()


def test_delete_is_logged(full):
    """G12: an operator's delete is logged, although the Instance's own log goes with it."""
    chosen = [full[State.FINISHED], full[State.FAILED]]
    found = document("delete", *(str(instance.uuid) for instance in chosen))
    assert found == {"asked": 2, "removed": 2}
    record = LogRecord.objects.about("type:tests.echo").last()
    assert record.who == actor()
    assert all(str(instance.uuid) in record.message for instance in chosen)


# Bad input


BAD = [
    ([], "required"),
    (["statsu"], r"invalid choice.* Did you mean 'status'\?"),
    (["status", "extra"], "unrecognized"),
    (["list", "--state", "RUNING"], "Did you mean 'RUNNING'"),
    (["list", "--reason", "stael"], "Did you mean 'STALE'"),
    (["list", "--type", "tests.ecko"], "Did you mean 'tests.echo'"),
    (["enqueue", "atp.delete"], "belongs to ATP"),
    (["list", "--limit", "0"], "whole number from 1"),
    (["list", "--limit", "many"], "whole number from 1"),
    (["list", "--before", "zzz"], "neither a uuid"),
    (["list", "--before", "00000000"], "There is no Instance"),
    (["list", "--collection", "a\nb"], "printable"),
    (["list", "--identifier", "\udcff"], "printable"),
    (["list", "--created-by", "x" * 201], "200 are allowed"),
    (["show"], "Which one"),
    (["show", "0123"], "neither a uuid"),
    (["show", "00000000-0000-7000-8000-000000000000"], "There is no Instance"),
    (["show", "--type", "tests.echo"], "Which one"),
    (["show", "--type", "tests.ecko", "--identifier", "a"], "Did you mean"),
    (["show", "--type", "tests.echo", "--identifier", "a"], "There is no Instance of tests.echo"),
    (["show", "{FAILED}", "--identifier", "a"], "either a uuid"),
    (["show", "{FAILED}", "--response", "-", "--json"], "without --json"),
    (["show", "{FAILED}", "--response"], "There is no response: the Instance is FAILED ERROR."),
    (["show", "{FINISHED}", "--response", "/nowhere/at/all"], "cannot be written"),
    (["enqueue"], "required"),
    (["enqueue", "tests.ecko"], "Did you mean 'tests.echo'"),
    (["enqueue", "tests.elsewhere"], "no handler"),
    (["enqueue", "tests.echo", "{"], "not JSON"),
    (["enqueue", "tests.echo", "'a': 1"], "not JSON"),
    (["enqueue", "tests.echo", "3"], "JSON object"),
    (["enqueue", "tests.echo", '{"a": 1, "a": 2}'], "stands twice"),
    (["enqueue", "tests.echo", '{"a": {"$date": "x"}}'], "not JSON|Not the JSON"),
    (["enqueue", "tests.echo", "[" * 100_000], "not JSON"),
    (["enqueue", "tests.echo", '{"*": 1}'], "array"),
    (["enqueue", "tests.echo", "[1]"], "do not fit"),
    (["enqueue", "tests.keyword", '{"paht": "a"}'], "Did you mean 'path'"),
    (["enqueue", "tests.echo", json.dumps({"a": "x" * 2_000_000})], "limit is"),
    (["enqueue", "tests.echo", "--priority", "101"], "from -100 to 100"),
    (["enqueue", "tests.echo", "--priority", "high"], "whole number"),
    (["enqueue", "tests.echo", "--identifier", ""], "must not be empty"),
    (["enqueue", "tests.echo", "--existing", "return"], "give one"),
    (["enqueue", "tests.echo", "--identifier", "a", "--existing", "retrun"], "Did you mean"),
    (["enqueue", "tests.echo", "--run-after", "soon"], "neither a time"),
    (["enqueue", "tests.echo", "--run-after", "99999999999w"], "longer than"),
    (["enqueue", "tests.echo", "--run-after", "2h", "--start-before", "1h"], "later than"),
    (["enqueue", "tests.echo", "--wait", "-1"], "number of seconds|expected"),
    (["enqueue", "tests.echo", "--wait", "nan"], "number of seconds"),
    (["change"], "required"),
    (["change", "{ACCEPTED}"], "What"),
    (["change", "{RUNNING}", "--priority", "1"], "cannot be changed: it is RUNNING"),
    (["change", "{FINISHED}", "--due", "0s"], "cannot be changed: it is FINISHED"),
    (["change", "00000000", "--due", "0s"], "There is no Instance"),
    (["change", "{ACCEPTED}", "--priority", "101"], "from -100 to 100"),
    (["change", "{ACCEPTED}", "--priority", "high"], "whole number"),
    (["change", "{ACCEPTED}", "--due", "soon"], "neither a time"),
    (["change", "{ACCEPTED}", "--due", "9999-12-31T23:59-10:00"], "calendar"),
    (["change", "{ACCEPTED}", "--postpone", "2030-01-31"], "not a delay"),
    (["change", "{ACCEPTED}", "--postpone", "2h", "--due", "0s"], "either due or postpone"),
    (["change", "{ACCEPTED}", "--collection", "a\nb"], "printable"),
    (["daemon"], "required"),
    (["daemon", "sleep", "--all"], "invalid choice"),
    (["daemon", "quiet"], "Which ones"),
    (["daemon", "quiet", "host:1", "--all"], "Which ones"),
    (["daemon", "quiet", "hots:1"], "Did you mean 'host:1'"),
    (["daemon", "quiet", "host:99999999999"], "There is no daemon"),
    (["daemon", "quiet", "00000000-0000-7000-8000-000000000000"], "There is no daemon"),
    (["daemon", "quiet", "--host", "hots"], "Did you mean 'host'"),
    (["daemon", "resume", "host:1"], "it is running"),
    (["redrive"], "Which ones"),
    (["redrive", "{FAILED}", "--all"], "Which ones"),
    (["redrive", "--all"], "needs --yes"),
    (["redrive", "--all", "--json"], "needs --yes"),
    (["redrive", "--type", "tests.ecko", "--yes"], "Did you mean"),
    (["redrive", "--reason", "x", "--yes"], "none of"),
    (["redrive", "{RUNNING}"], "cannot be redriven"),
    (["redrive", "{FAILED}", "00000000"], "There is no Instance"),
    (["release", "{FAILED}"], "cannot be released"),
    (["release"], "required"),
    (["cancel"], "Which ones"),
    (["cancel", "{RUNNING}", "--type", "tests.echo"], "Which ones"),
    (["cancel", "--type", "tests.add"], "Nothing was cancelled: a selection needs --yes"),
    (["cancel", "--type", "tests.ecko", "--yes"], "Did you mean"),
    (["cancel", "{FAILED}"], "cannot be cancelled: it is FAILED"),
    (["purge", "--type", "tests.ecko"], "Did you mean"),
    (["delete"], "Which ones"),
    (["delete", "0123456789"], "not a whole uuid"),
    (["delete", "{FINISHED}", "{RUNNING}"], "cannot be removed: it is RUNNING"),
    (["delete", "{FINISHED}", "00000000-0000-7000-8000-000000000000"], "There is no Instance"),
]


@pytest.mark.parametrize(("args", "told"), BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_bad_input_is_an_error_and_nothing_is_written(full, args, told):
    """G13."""
    elsewhere = Type.objects.get(identifier="tests.echo")
    elsewhere.pk, elsewhere.identifier = None, "tests.elsewhere"
    elsewhere.save()
    named = {state.value: str(full[state].uuid) for state in State}
    args = [named.get(arg.strip("{}"), arg) if arg[:1] == "{" else arg for arg in args]
    before = full.world.snapshot()
    with pytest.raises(CommandError, match=told):
        run(*args)
    assert full.world.snapshot() == before


def test_what_is_not_text_is_refused_on_stdin(world, monkeypatch):
    """G13."""
    stdin(monkeypatch, b"\xff")
    with pytest.raises(CommandError, match="not UTF-8"):
        run("enqueue", "tests.echo", "-")


def test_bad_input_is_told_without_a_traceback(db):
    done = subprocess.run(
        manage("atp", "list", "--state", "RUNING"),
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Did you mean 'RUNNING'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unregistered_type_is_enqueued_all_the_same(world):
    Type.objects.filter(identifier="tests.echo").delete()
    run("enqueue", "tests.echo")
    assert latest().type.identifier == echo.identifier
    assert "tests.echo" in registry


# Words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.12, "120 ms"),
        (4.2, "4.2 s"),
        (5, "5 s"),
        (42.4, "42 s"),
        (200, "3.3 min"),
        (7199, "2 h"),
        (40 * 3600, "40 h"),
        (72 * 3600, "3 d"),
        (-200, "-3.3 min"),
    ],
)
def test_durations_are_short(seconds, shown):
    assert wording.duration(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("2030-01-31T18:00+02:00", datetime(2030, 1, 31, 16, tzinfo=UTC)),
        ("2030-01-31T18:00Z", datetime(2030, 1, 31, 18, tzinfo=UTC)),
    ],
)
def test_moments(given, moment):
    assert arguments.moment(given) == moment


def test_a_moment_without_an_offset_is_in_the_current_time_zone():
    with timezone.override("Europe/Vienna"):
        assert arguments.moment("2030-01-31T18:00") == datetime(2030, 1, 31, 17, tzinfo=UTC)


def test_times_are_shown_in_the_current_time_zone():
    with timezone.override("Europe/Vienna"):
        assert wording.moment(datetime(2030, 1, 31, 17, tzinfo=UTC)) == "2030-01-31 18:00:00"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes(count, shown):
    assert wording.size(count) == shown


def test_tables_align_numbers_to_the_right():
    assert present.table(["name", "n"], [["a", 1], ["bcdef", 10]]).splitlines() == [
        "name    n",
        "a       1",
        "bcdef  10",
    ]


class TestGate:
    def test_hold_drop_and_open(self, full):
        assert run("gate").strip() == "All gates are open."
        told = run("gate", "hold", "--type", "tests.echo", "--reason", "why", "--until", "1h")
        assert "tests.echo  hold" in told
        assert "why" in told
        run("gate", "drop", "--type", "tests.echo", "--collection", "a")
        run("gate", "hold")
        found = {(row["type"], row["collection"]): row for row in document("gate")["gates"]}
        assert found[None, None]["mode"] == "hold"
        assert found["tests.echo", "a"]["mode"] == "drop"
        assert found["tests.echo", None]["who"] == actor()
        run("gate", "open", "--type", "tests.echo")
        assert ("tests.echo", None) not in {
            (row["type"], row["collection"]) for row in document("gate")["gates"]
        }

    def test_what_was_replaced_is_told(self, full):
        queue.drop("tests.echo", reason="spam", by="ann")
        found = document("gate", "hold", "--type", "tests.echo")
        assert (found["was"]["mode"], found["was"]["who"]) == ("drop", "ann")
        assert "Before, it was dropped by ann" in found["told"]
        told = run("gate", "open", "--type", "tests.echo")
        assert re.search(r"The gate is open. Before, it was held by .* via shell", told)
        told = run("gate", "open", "--type", "tests.echo", "--reason", "why")
        assert told.splitlines()[0] == "It is open already."

    def test_only_if_it_is_as_expected(self, full):
        queue.drop("tests.echo", reason="spam", by="ann")
        with pytest.raises(CommandError, match=r"dropped by ann, since .*: spam"):
            run("gate", "hold", "--type", "tests.echo", "--expected", "open")
        run("gate", "hold", "--type", "tests.echo", "--expected", "drop")
        assert queue.gates()[0].mode == "hold"

    def test_a_lane_below_what_is_held(self, full):
        queue.hold(reason="maintenance", by="ann")
        queue.hold("tests.echo", "a")
        told = run("gate", "open", "--type", "tests.echo", "--collection", "a")
        assert "Nothing moves there yet: everything is held by ann, since" in told
        told = run("gate", "open")
        assert "Nothing moves" not in told

    def test_who_has_set_them(self, full):
        assert "Nobody" in run("gate", "--log")
        queue.hold(reason="maintenance", by="ann")
        queue.hold("tests.echo", "a", by="bob")
        queue.hold("tests.add", "b", by="cid")
        queue.open_gate(by="dan")
        queue.limit("tests.echo", rate="5/s", by="eve")
        rows = document("gate", "--log")["log"]
        assert [row["who"] for row in rows] == ["dan", "cid", "bob", "ann"]
        assert (rows[1]["type"], rows[1]["collection"]) == ("tests.add", "b")
        assert rows[3]["type"] is None
        shown = run("gate", "--log", "--type", "tests.echo")
        assert "tests.echo / 'a'  bob  gate: hold" in shown
        assert "ann" not in shown
        assert "eve" not in shown
        assert "eve" in run("limit", "--log")

    @pytest.mark.parametrize(
        "wrong",
        [
            ("hold", "--log"),
            ("--log", "--type", "tests.ecko"),
            ("hold", "--expected", "shut"),
            ("hold", "--expected", "drop"),
            ("--collection", ""),
            ("hold", "--type", "tests.ecko"),
            ("hold", "--collection", "a"),
            ("hold", "--until", "soon"),
            ("hold", "--until", "2000-01-01"),
            ("open", "--until", "1h"),
            ("--type", "tests.echo"),
            ("shut",),
        ],
    )
    def test_what_makes_no_sense(self, full, wrong):
        """G13."""
        with pytest.raises(CommandError):
            run("gate", *wrong)
        assert queue.gates() == []


class TestLimit:
    def test_set_and_leave(self, full):
        assert run("limit").strip() == "Nothing is limited."
        run("limit", "--type", "tests.echo", "--max-running", "3", "--weight", "0.5")
        told = run("limit", "--type", "tests.echo", "--rate", "100/m")
        assert "100/m" in told
        [found] = document("limit")["limits"]
        assert (found["max_running"], found["rate"], found["weight"]) == (3, "100/m", 0.5)
        [found] = document("limit", "--type", "tests.echo", "--max-running", "none")["limits"]
        assert found["max_running"] is None
        assert document("limit", "--type", "tests.echo", "--default")["limits"] == []

    def test_after_a_change_everything_is_listed(self, full):
        run("limit", "--type", "tests.echo", "--max-running", "3")
        told = run("limit", "--type", "tests.add", "--collection", "a", "--default")
        assert "No operator has set limits there: nothing is limited." in told
        assert "Nothing is limited." not in told
        assert "tests.echo        3" in told
        assert "tests.echo" in run("limit", "--type", "tests.add", "--rate", "5/min")
        assert "tests.echo" not in run("limit", "--type", "tests.add")
        run("limit", "--type", "tests.add", "--default")
        assert run("limit", "--type", "tests.add").strip() == "Nothing of tests.add is limited."

    def test_left_to_the_code(self, full, limited):
        run("limit", "--type", "tests.echo", "--max-running", "9")
        [found] = document("limit", "--type", "tests.echo", "--default")["limits"]
        assert (found["max_running"], found["rate"], found["is_set"]) == (3, "100/m", False)

    def test_left_to_a_code_that_is_not_here(self, full, monkeypatch):
        run("limit", "--type", "tests.echo", "--max-running", "9")
        monkeypatch.delitem(registry._types, "tests.echo")
        told = run("limit", "--type", "tests.echo", "--default")
        assert "stay until the Type is next registered: 9 at a time" in told
        [found] = document("limit")["limits"]
        assert (found["max_running"], found["is_set"]) == (9, False)

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            (("--weight", "nan"), "'nan' is not a number from 0.001 to 1000"),
            (("--weight", "heavy"), "'heavy' is not a number"),
            (("--max-running", "0"), "use a gate: hold keeps"),
            (("--rate", "0/s"), "use a gate: hold keeps"),
            (("--rate", "5/parsec"), "times are s, m, min, h, d, w."),
        ],
    )
    def test_what_is_wrong_is_said_in_words_that_fit(self, full, wrong, told):
        with pytest.raises(CommandError, match=re.escape(told)):
            run("limit", "--type", "tests.echo", *wrong)

    @pytest.mark.parametrize(
        "wrong",
        [
            ("--rate", "1/s"),
            ("--type", "tests.ecko", "--rate", "1/s"),
            ("--type", "tests.echo", "--rate", "fast"),
            ("--type", "tests.echo", "--burst", "3"),
            ("--type", "tests.echo", "--weight", "0"),
            ("--type", "tests.echo", "--max-running", "0"),
            ("--type", "tests.echo", "--default", "--rate", "1/s"),
            ("--type", "tests.echo", "--collection", "a"),
            ("--log", "--type", "tests.echo", "--rate", "1/s"),
        ],
    )
    def test_what_makes_no_sense(self, full, wrong):
        """G13."""
        with pytest.raises(CommandError):
            run("limit", *wrong)
        assert queue.limits() == []


def test_status_fails_while_something_is_wrong(world):
    """For cron and probes: the exit status is 1, and all of it is printed before."""
    assert run("status")
    run("enqueue", "tests.echo")
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"Problems: 1\."):
        call_command("atp", "status", stdout=out)
    assert "! Work is due, and no daemon is alive." in out.getvalue()


@pytest.mark.parametrize("name", ["status", "enqueue"])
def test_what_is_not_migrated_is_told(transactional_db, name):
    """Where a statement fails, and why: not the first column that lacks."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE atp_gate RENAME TO atp_gate_gone")
        cursor.execute("ALTER TABLE atp_task RENAME TO atp_task_gone")
        cursor.execute("UPDATE django_migrations SET app = 'gone' WHERE app = 'atp'")
    try:
        more = ["tests.echo"] if name == "enqueue" else []
        with pytest.raises(CommandError, match=r"are not applied .*: run manage\.py migrate\."):
            run(name, *more)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_migrations SET app = 'atp' WHERE app = 'gone'")
            cursor.execute("ALTER TABLE atp_gate_gone RENAME TO atp_gate")
            cursor.execute("ALTER TABLE atp_task_gone RENAME TO atp_task")


def test_a_terminal_that_lacks_a_character_is_shown_it_escaped(db):
    instance = echo.enqueue(text="x")
    queue.cancel(instance, by="漢")
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, "ascii")
    call_command("atp", "show", str(instance.uuid), stdout=terminal)
    terminal.flush()
    assert rb"\u6f22" in raw.getvalue()


def test_cancel_without_a_collection_leaves_collections_alone(full):
    """An empty text is no missing filter."""
    other = echo.using(collection="books").enqueue()
    found = document("cancel", "--collection", "", "--yes")
    assert found["cancelled"] >= 1
    assert queue.get(other.uuid).state == State.ACCEPTED


def test_no_outcome_speaks_to_the_terminal(world, monkeypatch):
    """Whatever a subcommand makes of stored text: its outcome, its remarks, its errors."""

    class Careless(Subcommand):
        name = "status"

        def run(self, options):
            self.say(f"said {ESCAPE}")
            return {}

        def text(self, document):
            return f"one {ESCAPE}\u202e\ntwo\x85"

        def check(self, document, options):
            raise CommandError(f"wrong {ESCAPE}", returncode=3)

    monkeypatch.setattr("atp.management.commands.atp.subcommands", lambda: [Careless])
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("atp", "status", stdout=out, stderr=err)
    assert out.getvalue() == "one \\x1b]0;title\\x07\\u202e\ntwo\\x85\n"
    assert err.getvalue() == "said \\x1b]0;title\\x07\n"
    assert (str(raised.value), raised.value.returncode) == ("wrong \\x1b]0;title\\x07", 3)
