"""Tests of ``manage.py atp`` and its subcommands (docs/shell.md)."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from atp import queue, text
from atp.deadletters import shell as selections
from atp.graphs import reports
from atp.management.commands.atp import Command, subcommands
from atp.models import Graph, Instance, LogRecord, Schedule, Task, Type
from atp.shell import arguments, present
from atp.shell import instances as enqueueing
from atp.shell.base import Subcommand, actor
from atp.states import Event, Reason, State
from atp.store.values import ResponseData

from . import environment
from .app import tasks_downstream
from .app.tasks import echo
from .helpers import Thread, child_environment, manage, wait_for
from .populated import ESCAPE, GRAPH, HOSTILE, MARKUP, populate, submitted
from .store.broken import age, settle

DOCS = (Path(environment.ROOT) / "docs" / "shell.md").read_text()


def run(*args):
    """Return the output of ``manage.py atp``, also if ``status`` fails because of problems."""
    out = io.StringIO()
    try:
        call_command("atp", *args, stdout=out, stderr=io.StringIO())
    except CommandError as error:
        if args[:1] != ("status",) or not str(error).startswith("Problems: "):
            raise
    return out.getvalue()


def refused(told, *args):
    """Return the error of a call that is refused with these words."""
    with pytest.raises(CommandError, match=told) as caught:
        run(*args)
    return caught.value


def document(*args):
    return json.loads(run(*args, "--json"))


def latest():
    return Instance.objects.latest("pk")


@pytest.fixture
def full(world):
    return populate(world)


@pytest.fixture
def elsewhere(world):
    """Create a Type that is in the database but is not declared by this process."""
    row = Type.objects.get(identifier="tests.echo")
    row.pk, row.identifier = None, "tests.elsewhere"
    row.save()


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def calls(full):
    """Return valid calls of all subcommands."""
    queue.register(tasks_downstream.call)
    full.tailer()
    accepted, finished = full[State.ACCEPTED].uuid, full[State.FINISHED].uuid
    return (
        *("status", "check", "statistics --recount", "metrics", "types", "type tests.echo", "list"),
        *("purge", "daemons", "gates", "limits", "downstreams", "schedules", "tailers", "errors"),
        *("graphs", f"show {finished}", f"delete {finished}", f"resume {full[State.PAUSED].uuid}"),
        *(f"{name} {full[State.RUNNING].uuid}" for name in ("release", "pause", "stack", "cancel")),
        *(f"why {accepted}", f"run-now {accepted}", f"change {accepted} --priority 3"),
        f"redrive {full[State.FAILED].uuid}",
        'enqueue tests.echo {"a":1}',
        "gate hold --type tests.echo",
        "limit --type tests.echo --rate 100/m",
        "downstream bound relay --ceiling 5",
        "daemon quiet --all",
        *("schedule show nightly", "schedule try --every 10m", "schedule run of-the-code"),
        "tailer seek tests.tailer --shard a --position 5",
        f"error show {full.error().name}",
        f"graph show {full.graph().uuid}",
    )


ALL_NAMES = [subcommand.name for subcommand in subcommands()]
# See test_commands_import_beat.py, test_health.py and executors/test_pilots.py.
ELSEWHERE = {"import-beat", "end-session", "pilots"}


# The keys of values whose own keys come from the project.
OF_THE_PROJECT = (
    *("value", "reasons", "signatures"),
    *("labels", "capacity", "needs", "resources", "lacks"),
)


def keys(value):
    """Yield all keys of a document, except inside values that come from the project."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            is_of_schedule = key == "inputs" and "cron" in value
            if key not in OF_THE_PROJECT and not is_of_schedule:
                yield from keys(item)


def section(name):
    """Return what the docs say about a subcommand."""
    return re.search(rf"^### `{name}`$(.*?)^##", DOCS, re.M | re.S).group(1)


@contextmanager
def undone():
    """Roll back all that the block writes."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.slow
def test_each_subcommand_has_documented_keys_and_prints_no_control_characters(full):
    """G14: stored text is escaped, because a terminal would interpret control characters."""
    shared = DOCS[DOCS.index("## Documents") :]
    wrong, called = {}, set()
    for line in calls(full):
        name, *args = line.split()
        called.add(name)
        with undone():
            found = set(keys(document(name, *args)))
        with undone():
            shown = run(name, *args)
        missing = {key for key in found if f"`{key}`" not in section(name) + shared}
        odd = {c for c in shown if not c.isprintable() and c != "\n"}
        if missing or odd or not found or not shown.strip():
            wrong[line] = missing, odd
    assert wrong == {}
    assert called == {*ALL_NAMES} - ELSEWHERE


@pytest.mark.slow
def test_subcommands_work_on_an_empty_queue(world):
    Schedule.objects.all().delete()
    Type.objects.all().delete()
    for name in ("status", "types", "list", "daemons", "schedules"):
        assert run(name).strip(), name
        assert document(name), name


def test_docs_name_every_subcommand_and_option():
    parser = Command().create_parser("manage.py", "atp")
    [words] = [a for a in parser._actions if a.dest == "subcommand"]
    assert list(words.choices) == ALL_NAMES
    missing = [name for name in ALL_NAMES if f"### `{name}`" not in DOCS]
    for subparser in words.choices.values():
        options = [o for action in subparser._actions for o in action.option_strings]
        missing += [o for o in options if o not in ("-h", "--help") and f"`{o}" not in DOCS]
    assert missing == []


def test_status_counts_instances_by_state(full):
    found = document("status")
    counted = [found[name] for name in ("due", "later", "scheduled", "running", "paused")]
    assert counted == [0, 1, 1, 1, 1]
    assert (found["finished"], found["failed"], found["oldest_due"]) == (1, 1, None)
    [of_echo] = [counts for counts in found["types"] if counts["type"] == "tests.echo"]
    assert of_echo["reasons"] == {"ERROR": 1}
    assert datetime.fromisoformat(found["next_due"]) > full.world.store.now() + timedelta(hours=2)
    assert "0 due, 1 later (the next in 3 h)" in run("status")
    run("enqueue", "tests.echo")
    overdue = full.world.store.now() - timedelta(minutes=3, seconds=5)
    Task.objects.filter(pk=latest().pk).update(due_at=overdue)
    assert "1 due (the oldest for 3.1 min)" in run("status")


def test_daemons_subcommand_shows_the_condition_and_the_workers_of_a_daemon(full):
    """A daemon that misses renewals is ``late``, and a daemon without a lease is ``lost``."""
    row = full.host.row
    row.workers[0]["paused"] = True
    row.save()
    [daemon] = document("daemons")["daemons"]
    assert daemon["condition"] == "alive"
    assert [worker["pid"] for worker in daemon["workers"]] == [11, 12]
    assert [worker["paused"] for worker in daemon["workers"]] == [True, False]
    assert daemon["workers"][0]["instance"] == str(full[State.RUNNING].uuid)
    assert re.search(r"tests\.echo .* paused\n", run("daemons"))
    assert re.search(r"host:1 .* 2 +0 +1 ", run("status"))
    row.seen = full.world.store.now() - timedelta(seconds=30)
    row.save()
    assert document("daemons")["daemons"][0]["condition"] == "late"
    full.host.lose_lease()
    assert document("status")["daemons"][0]["condition"] == "lost"


@pytest.mark.slow
def test_types_subcommand_shows_gates_limits_and_ownership(full, elsewhere):
    """G4: the number of late writes is shown, too."""
    queue.register(echo)
    given = {"downstream": "tiles", "owner": "terrain", "runbook": "https://wiki/relief"}
    Type.objects.filter(identifier="tests.echo").update(**given, late_writes=3)
    queue.hold("tests.echo")
    queue.drop("tests.echo", "books")
    queue.limit("tests.echo", max_running=2)
    queue.hold()
    [found] = [row for row in document("types")["types"] if row["identifier"] == "tests.echo"]
    assert found["controls"] == ["held", "'books' dropped", "2 at a time"]
    assert found["late_writes"] == 3
    [shown] = [line for line in run("types").splitlines() if line.startswith("tests.echo ")]
    lines = ["downstream: tiles", "owner: terrain", "runbook: https://wiki/relief"]
    told = ["held; 'books' dropped; 2 at a time", "late writes: 3", *lines]
    assert [text for text in told if text not in shown] == []
    assert run("type", "tests.echo").splitlines()[1:4] == lines
    Type.objects.filter(identifier="tests.keyword").update(retention=None)
    found = document("purge")
    assert found["value"] == 0
    assert re.search("Types without retention: .*tests.keyword", found["outcome"])
    # The list shows which Types this process declares.
    Type.objects.filter(identifier="tests.keyword").delete()
    types = {row["identifier"]: row for row in document("types")["types"]}
    told = [(row["declared"], bool(row["registered"])) for row in types.values()]
    assert set(told) == {(True, True), (False, True), (True, False)}
    shown = run("types")
    assert re.search(r"tests\.elsewhere .*\(not in this process\)", shown)
    assert re.search(r"tests\.keyword .*\(not registered yet\)", shown)


def listed(*args):
    return [row["uuid"] for row in document("list", *args)["instances"]]


@pytest.mark.slow
def test_list_subcommand_filters_instances_and_shows_them_page_by_page(full):
    ended = State.FINISHED, State.FAILED
    for options, *states in (
        (["--state", "paused"], State.PAUSED),
        (["--reason", "error"], State.FAILED),
        (["--collection", "books"], State.FAILED),
        (["--identifier", MARKUP], State.FAILED),
        (["--type", "tests.add"], State.ACCEPTED),
        (["--created-by", "somebody"], State.ACCEPTED),
        (["--daemon", "host:1"], State.PAUSED, State.RUNNING, State.SCHEDULED),
        (["--created-after", "2020-01-01", "--ended-before", "2099-01-01T00:00Z"], *ended),
        (["--tried-again"],),
        (["--longer-than", "1h"],),
        (["--type", "tests.add", "--input", "second=2"], State.ACCEPTED),
    ):
        assert listed(*options) == [str(full[state].uuid) for state in states], options
    everything = Instance.objects.newest_first()
    assert listed("--collection", "") == [str(i.uuid) for i in everything.filter(collection="")]
    assert listed("--state", "finished", "--type", "tests.add") == []
    found, page = [], document("list", "--limit", "2")
    while page["next"] is not None:
        found += [row["uuid"] for row in page["instances"]]
        page = document("list", "--limit", "2", "--before", page["next"])
    found += [row["uuid"] for row in page["instances"]]
    assert found == [str(i.uuid) for i in everything]
    assert f"--before {found[1]}" in run("list", "--limit", "2")


def test_list_subcommand_writes_all_that_match_as_csv_or_json_lines(full):
    lines = run("list", "--csv", "--state", "failed").splitlines()
    assert lines[0].startswith("uuid,type,identifier")
    assert len(lines) == 2
    assert ESCAPE not in lines[1]
    uuids = [json.loads(line)["uuid"] for line in run("list", "--jsonl").splitlines()]
    assert uuids == [str(each.uuid) for each in Instance.objects.newest_first()]
    assert "# 1 rows: stopped at the limit" in run("list", "--csv", "--limit", "1")


def test_show_subcommand_prints_the_inputs_the_response_the_log_and_the_task(full):
    shown = run("show", str(full[State.FAILED].uuid))
    assert "FAILED ERROR" in shown
    assert "enqueue → ACCEPTED" in shown
    assert "fail → FAILED: ERROR: Traceback" in shown
    assert r"ValueError: <script>alert('x')</script> \x1b]0;title\x07" in shown
    found = document("show", str(full[State.FINISHED].uuid))
    assert found["inputs"]["value"] == {"said": MARKUP, "number": 7}
    assert found["response"]["value"] == {"said": MARKUP}
    assert [r["event"] for r in found["log"]] == ["enqueue", "claim", "start", "", "finish"]
    assert found["log"][3]["message"] == HOSTILE
    assert document("show", str(full[State.RUNNING].uuid))["task"]["daemon"] == "host:1"


def test_show_finds_an_instance_by_identifier_or_by_a_uuid_prefix(full):
    failed = str(full[State.FAILED].uuid)
    by_identifier = document("show", "--type", "tests.echo", "--identifier", MARKUP)
    assert by_identifier["uuid"] == failed
    assert document("show", failed[:-1].upper())["uuid"] == failed
    assert document("show", failed.replace("-", ""))["uuid"] == failed
    for number, pk in enumerate(Instance.objects.values_list("pk", flat=True)[:2]):
        uuid = f"01234567-89ab-7000-8000-00000000000{number}"
        Instance.objects.filter(pk=pk).update(uuid=uuid)
    refused("More than one uuid begins", "show", "01234567")
    assert document("show", "01234567-89ab-7000-8000-000000000001")


@pytest.mark.slow
def test_show_never_opens_a_pickle(full):
    """G14: a pickle is not loaded. Inputs that JSON cannot represent are shown without a value."""
    instance = full[State.ACCEPTED]
    stored = type(instance.inputs).objects.filter(pk=instance.pk)
    stored.update(data='{"a": 1e999}')
    assert document("show", str(instance.uuid))["inputs"]["value"] is None
    stored.update(format="pickle", data="evil")
    assert "a signed pickle, not opened here" in run("show", str(instance.uuid))
    found = document("show", str(instance.uuid))["inputs"]
    assert found == {"format": "pickle", "value": None, "carried": {}}


BYTES = bytes(range(256))


def test_show_writes_the_raw_response_to_stdout_or_a_file(full, media, tmp_path, capfdbinary):
    assert run("show", str(full[State.FINISHED].uuid), "--response") == f'{{"said":"{MARKUP}"}}'
    picture = str(full.finished(content_type="image/png", data=BYTES, size=256).uuid)
    target = tmp_path / "body"
    assert run("show", picture, "--response", str(target)) == ""
    assert target.read_bytes() == BYTES
    refused("not text", "show", picture, "--response")
    with open(1, "w", closefd=False) as stream:
        call_command("atp", "show", picture, "--response", stdout=stream)
    assert capfdbinary.readouterr().out == BYTES
    # A large response is stored in a file.
    (media / "atp").mkdir()
    (media / "atp" / "large").write_bytes(b"large")
    details = {"content_type": "text/plain", "data": None, "size": 5}
    instance = full.finished(file="atp/large", **details)
    assert run("show", str(instance.uuid), "--response") == "large"
    gone = full.finished(file="atp/gone", **details)
    refused("cannot be read", "show", str(gone.uuid), "--response")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_show_prints_a_response_on_a_terminal_only_as_escaped_text(full):
    """G14: a response cannot control the operator's terminal."""
    data = f"one{ESCAPE}\ntwo".encode()
    text = full.finished(content_type="text/plain", data=data, size=len(data))
    out = Terminal()
    call_command("atp", "show", str(text.uuid), "--response", stdout=out)
    assert out.getvalue() == "one\\x1b]0;title\\x07\ntwo\n"
    picture = full.finished(content_type="image/png", data=BYTES, size=256)
    with pytest.raises(CommandError, match="A terminal cannot show this response"):
        call_command("atp", "show", str(picture.uuid), "--response", stdout=Terminal())


def test_enqueue_subcommand_accepts_all_options(world):
    options = "--identifier A-1 --priority -7 --collection maps --run-after 1h30m --start-before 2d"
    run("enqueue", "tests.keyword", '{"path": "a", "scale": 2.5}', *options.split())
    instance = latest()
    assert instance.inputs.value == {"path": "a", "scale": 2.5}
    assert (instance.identifier, instance.priority, instance.collection) == ("A-1", -7, "maps")
    assert instance.created_by == actor()
    assert re.fullmatch(r"user .+ via shell", actor())
    now = world.store.now()
    assert abs(instance.task.due_at - now - timedelta(minutes=90)) < timedelta(minutes=1)
    assert abs(instance.start_before - now - timedelta(days=2)) < timedelta(minutes=1)
    assert instance.log.first().who == actor()


def test_enqueue_subcommand_takes_positional_inputs_and_reads_stdin(world, monkeypatch):
    for inputs in ("[1, 2, 3]", '{"*": [1, 2, 3]}'):
        run("enqueue", "tests.add", inputs)
        assert latest().inputs.value == {"*": [1, 2, 3]}
    stdin(monkeypatch, '{"said": "ü", "at": {"$date": "2030-01-31"}}'.encode())
    run("enqueue", "tests.echo", "-")
    assert latest().inputs.value["at"].isoformat() == "2030-01-31"
    stdin(monkeypatch, b"\xff")
    refused("not UTF-8", "enqueue", "tests.echo", "-")
    # A missing stdin is not treated as a terminal.
    monkeypatch.setattr(sys, "stdin", None)
    refused("needs --yes", "cancel", "--type", "tests.add")
    refused("inputs are", "enqueue", "tests.echo", "-")


def test_enqueue_subcommand_refuses_returns_or_redrives_an_existing_instance(full):
    """G6: if the existing Instance is redriven, its log names the actor."""
    failed = full[State.FAILED]
    again = ("enqueue", "tests.echo", "--identifier", MARKUP)
    refused("exists already", *again)
    # The wait for an Instance that has failed fails, too.
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"FAILED: ERROR: ValueError") as caught:
        call_command("atp", *again, "--existing", "return", "--wait", "--json", stdout=out)
    assert caught.value.returncode == 1
    assert "\x1b" not in str(caught.value)
    assert json.loads(out.getvalue())["state"] == "FAILED"
    for existing, state in (("return", "FAILED"), ("redrive", "ACCEPTED")):
        found = document(*again, "--existing", existing)
        assert (found["uuid"], found["state"]) == (str(failed.uuid), state)
    assert failed.log.last().who == actor()


@pytest.mark.django_db(transaction=True)
def test_enqueue_with_wait_times_out_or_is_interrupted_with_a_status(world, monkeypatch):
    """It says that no daemon is alive, and prints its JSON document even after the timeout."""
    out, err = io.StringIO(), io.StringIO()
    again = ("enqueue", "tests.echo", "--wait", "0.01", "--json")
    with pytest.raises(CommandError, match="still ACCEPTED") as raised:
        call_command("atp", *again, stdout=out, stderr=err)
    assert raised.value.returncode == enqueueing.STILL_LIVE
    assert json.loads(out.getvalue())["uuid"] == str(latest().uuid)
    assert err.getvalue() == f"{latest().uuid} waits. No daemon is alive.\n"

    def interrupted(instance, timeout):
        raise KeyboardInterrupt

    monkeypatch.setattr(Instance, "wait", interrupted)
    error = refused("stays in the queue", "enqueue", "tests.echo", "--wait")
    assert (error.returncode, latest().state) == (130, State.ACCEPTED)


@pytest.mark.django_db(transaction=True)
def test_enqueue_reports_finished_for_an_instance_that_was_deleted_at_its_end(world, monkeypatch):
    """With ``retention=0``, an Instance is deleted as soon as it has FINISHED."""
    host, get = world.host("kit.nothing"), queue.get

    def late(*args):
        [case] = host.claim()
        host.move(case, Event.START, Event.FINISH)
        return get(*args)

    monkeypatch.setattr(queue, "get", late)
    assert "FINISHED" in run("enqueue", "kit.nothing")


@pytest.mark.django_db(transaction=True)
def test_enqueue_with_wait_prints_the_response_of_the_instance(world):
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


def test_redrive_subcommand_redrives_the_selected_instances(full, monkeypatch):
    monkeypatch.setattr(selections, "CHUNK", 2)
    dead = [full.failed(reason) for reason in (Reason.FATAL, Reason.STALE, Reason.FATAL)]
    kept = full.failed(Reason.MISSED)
    assert document("redrive", "--type", "tests.add", "--yes") == {"redriven": 0}
    assert document("redrive", "--reason", "fatal", "--yes") == {"redriven": 2}
    assert document("redrive", "--all", "--yes") == {"redriven": 2}
    assert {queue.get(instance.uuid).state for instance in dead} == {State.ACCEPTED}
    assert queue.get(kept.uuid).state == State.FAILED
    assert document("redrive", "--reason", "missed", "--yes") == {"redriven": 1}
    # An Instance that is named twice is counted once.
    uuid_ = str(kept.uuid)
    assert document("cancel", uuid_, uuid_.replace("-", "")) == {"cancelled": 1, "asked": 0}
    assert document("delete", uuid_, uuid_.replace("-", ""))["removed"] == 1


def test_selection_leaves_out_the_types_of_atp_unless_it_names_one(full):
    deletion = queue.delete_matching(type="tests.*", reason="ERROR")
    assert document("cancel", "--collection", "", "--yes")["cancelled"] >= 0
    assert queue.get(deletion.uuid).state == State.ACCEPTED
    queue.cancel(deletion)
    document("redrive", "--reason", "cancelled", "--yes")
    assert queue.get(deletion.uuid).state == State.FAILED
    found = document("redrive", "--reason", "cancelled", "--type", "atp.delete", "--yes")
    assert found == {"redriven": 1}


def test_cancel_subcommand_cancels_the_selected_instances(full, django_assert_max_num_queries):
    """An empty ``--collection`` counts as a filter. Many Instances take few queries."""
    refused(r"Nothing was cancelled.* --yes", "cancel", "--all")
    assert "would be cancelled" in run("cancel", "--all", "--dry-run")
    assert "carries this out" in run("redrive", "--type", "tests.*", "--canary", "0")
    others = echo.using(collection="books").enqueue_many([{}] * 100)
    assert document("cancel", "--collection", "", "--yes")["cancelled"] >= 1
    assert queue.get(others[0].uuid).state == State.ACCEPTED
    with django_assert_max_num_queries(30):
        run("cancel", "--collection", "books", "--yes")
    assert queue.get(others[0].uuid).state == State.FAILED
    assert "carries this out" in run("cancel", "--all", "--yes")


def test_redrive_asks_for_confirmation_at_a_terminal(full, monkeypatch):
    for answer in ("n\n", ""):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        refused("Nothing was redriven", "redrive", "--all")
        assert full[State.FAILED].state == State.FAILED
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    told = io.StringIO()
    call_command("atp", "redrive", "--all", stdout=io.StringIO(), stderr=told)
    assert "Instances selected: 1" in told.getvalue()
    assert full[State.FAILED].state == State.ACCEPTED
    # What is enqueued during the confirmation is not selected.
    echo.using(collection="maps").enqueue_many([{}] * 3)

    class Asked(Terminal):
        def readline(self):
            echo.using(collection="maps").enqueue_many([{}] * 4)
            return "y"

    monkeypatch.setattr(sys, "stdin", Asked())
    assert "Instances cancelled: 3" in run("cancel", "--collection", "maps")


def test_enqueue_subcommand_enqueues_even_if_its_output_cannot_be_written(full, monkeypatch):
    class Broken(io.StringIO):
        def flush(self):
            raise self.error

    stream = Broken()
    monkeypatch.setattr(os, "dup2", lambda *args: None)
    for stream.error in (BrokenPipeError(32, "Broken pipe"), OSError(28, "full")):
        with pytest.raises(CommandError, match="has done its work, but cannot write its output"):
            call_command("atp", "enqueue", "tests.keyword", '{"path": "a"}', stdout=stream)
    assert Instance.objects.of_type("tests.keyword").count() == 2


def test_bulk_commands_count_an_instance_that_another_operator_changed_first(full, monkeypatch):
    made = echo.using(collection="books").enqueue_many([{}] * 3)

    def beaten(operation):
        def call(*chosen, by):
            operation(chosen[1], by="somebody")
            return operation(*chosen, by=by)

        return call

    for name in ("cancel", "redrive"):
        monkeypatch.setattr(queue, name, beaten(getattr(queue, name)))
    found = document("cancel", "--collection", "books", "--yes")
    assert found == {"cancelled": 3, "asked": 0}
    assert document("redrive", "--reason", "cancelled", "--yes") == {"redriven": 3}
    assert {queue.get(each.uuid).state for each in made} == {State.ACCEPTED}


def test_daemon_subcommand_sends_commands_to_the_chosen_daemons(full):
    host = full.host
    other = full.world.host("tests.echo", name="elsewhere")
    assert run("daemon", "quiet", "host:1") == "Told to go quiet: 1\n  host:1\n"
    assert (host.row.request, other.row.request) == ("quiet", "")
    assert LogRecord.objects.about("daemon:host:1").last().who == actor()
    assert "running, soon quiet" in run("daemons")
    refused("has been told to go quiet", "daemon", "quiet", "elsewhere:1", "host:1")
    assert other.row.request == ""  # the command goes to all named daemons or to none
    told = document("daemon", "quiet", "--all")
    assert told["told"] == ["elsewhere:1"]
    assert [left["daemon"] for left in told["left_alone"]] == ["host:1"]
    assert "has been told to go quiet" in told["left_alone"][0]["why"]
    assert document("daemon", "resume", "--host", "elsewhere")["told"] == ["elsewhere:1"]
    run("daemon", "stop", str(host.uuid), "elsewhere:1")
    assert (host.row.request, other.row.request) == ("stop", "stop")


# Errors of the shell itself. The errors of an operation are tested with that operation.
BAD = [
    ([], "required"),
    (["statsu"], r"invalid choice.* Did you mean 'status'\?"),
    (["list", "--state", "RUNING"], "Did you mean 'RUNNING'"),
    (["list", "--type", "tests.ecko"], "Did you mean 'tests.echo'"),
    (["list", "--before", "00000000"], "There is no Instance"),
    (["show", "00000000-0000-7000-8000-000000000000"], "There is no Instance"),
    (["show", "--type", "tests.echo"], "Name the Instance"),
    (["show", "--type", "tests.echo", "--identifier", "a"], "There is no Instance of tests.echo"),
    (["show", "{FAILED}", "--identifier", "a"], "either a uuid"),
    (["show", "{FAILED}", "--response", "-", "--json"], "cannot be used with --json"),
    (["show", "{FAILED}", "--response"], "The Instance has no response. It is FAILED ERROR."),
    (["show", "{FINISHED}", "--response", "/nowhere/at/all"], "cannot be written"),
    (["enqueue", "tests.elsewhere"], "no handler"),
    (["enqueue", "tests.echo", "{"], "not JSON"),
    (["enqueue", "tests.echo", "--existing", "return"], "needs --identifier"),
    (["enqueue", "tests.echo", "--run-after", "soon"], "neither a time"),
    (["enqueue", "tests.echo", "--wait", "nan"], "number of seconds"),
    (["change", "{ACCEPTED}"], "Nothing to change"),
    (["change", "{ACCEPTED}", "{RUNNING}", "--priority", "9"], "cannot be changed: it is RUNNING"),
    (["daemon", "quiet"], "Name the daemons"),
    (["daemon", "quiet", "hots:1"], "Did you mean 'host:1'"),
    (["daemon", "quiet", "--host", "hots"], "Did you mean 'host'"),
    (["redrive"], "Which Instances"),
    (["redrive", "{FAILED}", "--all"], "Which Instances"),
    (["redrive", "--all"], "needs --yes"),
    (["cancel", "{ACCEPTED}", "{FINISHED}"], "cannot be cancelled: it is FINISHED"),
    (["cancel", "--type", "tests.add"], "Nothing was cancelled: a selection needs --yes"),
    (["cancel", "--type", "tets.*", "--yes"], r"No Type 'tets\.\*' is registered"),
    (["delete", "--type", "tests.echo", "--cancel", "--yes"], "--cancel is for Instances by uuid"),
    (["delete"], "Which Instances"),
    (["delete", "0123456789"], "not a whole uuid"),
    (["delete", "{FINISHED}", "{RUNNING}"], "cannot be removed: it is RUNNING"),
    (["gate", "shut"], ""),
    (["gate", "hold", "--log"], ""),
    (["gate", "--collection", ""], ""),
    (["gate", "hold", "--collection", "a"], ""),
    (["gate", "--type", "tests.echo"], ""),
    (["limit", "--type", "tests.echo", "--weight", "heavy"], "'heavy' is not a number"),
    (["limit", "--rate", "1/s"], ""),
    (["limit", "--type", "tests.echo", "--default", "--rate", "1/s"], ""),
    (["limit", "--type", "tests.echo", "--collection", "a"], ""),
    (["limit", "--log", "--type", "tests.echo", "--rate", "1/s"], ""),
    (["schedule", "shwo", "nightly"], "invalid choice"),
    (["schedule", "try", "--every", "5"], "'5' is not a delay such as 90s"),
    (["schedule", "create", "a", "tests.echo", "--every", "1h", "--inputs", "{"], "JSON"),
    (["schedule", "create", "a", "tests.echo", "--every", "1h", "--missed", "two"], "two"),
    (["schedule", "run"], "required"),
]


@pytest.mark.slow
def test_subcommands_reject_bad_input_and_write_nothing(full, elsewhere):
    """G13: each error says what is wrong."""
    named = {f"{{{state}}}": str(full[state].uuid) for state in State}
    before, schedules = full.world.snapshot(), list(Schedule.objects.order_by("pk").values())
    for args, told in BAD:
        refused(told or ".", *(named.get(each, each) for each in args))
    assert full.world.snapshot() == before
    assert list(Schedule.objects.order_by("pk").values()) == schedules
    assert [*queue.gates(), *queue.limits()] == []


def test_durations_and_sizes_get_units_and_table_columns_are_aligned():
    of_seconds = {0: "0 s", 0.12: "120 ms", 4.2: "4.2 s", 42.4: "42 s", 200: "3.3 min", 7199: "2 h"}
    of_seconds |= {40 * 3600: "40 h", 72 * 3600: "3 d", -200: "-3.3 min"}
    assert {s: text.duration(timedelta(seconds=s)) for s in of_seconds} == of_seconds
    of_bytes = {0: "0 bytes", 1023: "1023 bytes", 1536: "1.5 KiB", 3 << 30: "3.0 GiB"}
    assert {count: text.size(count) for count in of_bytes} == of_bytes
    lines = present.table(["name", "n"], [["a", 1], ["bcdef", 10]]).splitlines()
    assert lines == ["name    n", "a       1", "bcdef  10"]  # numbers stand on the right


def test_bad_input_is_reported_without_a_traceback(db):
    command = manage("atp", "list", "--state", "RUNING")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    assert failed.value.stdout == ""
    assert "Did you mean 'RUNNING'?" in failed.value.stderr
    assert "Traceback" not in failed.value.stderr


def test_time_argument_can_be_a_duration_or_a_date_with_or_without_an_offset():
    """A time without a UTC offset is in the current time zone."""
    delays = {
        "90s": {"seconds": 90},
        "1h30m": {"minutes": 90},
        "2d": {"days": 2},
        "1w": {"weeks": 1},
    }
    moments = {given: timedelta(**parts) for given, parts in delays.items()}
    for offset, hour in (("+02:00", 16), ("Z", 18), ("", 17)):
        moments[f"2030-01-31T18:00{offset}"] = datetime(2030, 1, 31, hour, tzinfo=UTC)
    with timezone.override("Europe/Vienna"):
        assert {given: arguments.moment(given) for given in moments} == moments
        assert text.moment(moments["2030-01-31T18:00"]) == "2030-01-31 18:00:00"


def test_status_exits_with_an_error_while_there_are_problems(world):
    """The output is complete, and cron jobs and probes get the exit status 1."""
    assert run("status")
    run("enqueue", "tests.echo")
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"Problems: 1\."):
        call_command("atp", "status", stdout=out)
    assert "! Work is due, and no daemon is alive." in out.getvalue()


@pytest.mark.slow
def test_gates_and_limits_are_set_and_listed(full):
    assert run("gate").strip() == "All gates are open."
    assert run("limit").strip() == "Nothing is limited."
    assert "tests.echo  hold" in run("gate", "hold", "--type", "tests.echo", "--until", "1h")
    [found] = document("gates")["gates"]
    assert (found["type"], found["mode"], found["who"]) == ("tests.echo", "hold", actor())
    assert "100/m" in run("limit", "--type", "tests.echo", "--rate", "100/m")
    [found] = document("limits")["limits"]
    assert (found["max_running"], found["rate"]) == (None, "100/m")
    for several, one in (("gates", "gate"), ("limits", "limit")):
        assert document(several)[several] == document(one)[several]
        assert "tests.echo" in run(one)
    [found] = document("limit", "--type", "tests.echo", "--rate", "none")["limits"]
    assert (found["max_running"], found["rate"]) == (None, "")
    assert document("limit", "--type", "tests.echo", "--default")["limits"] == []


def test_everything_that_a_subcommand_prints_or_raises_is_escaped(world, monkeypatch):
    """Even a careless subcommand cannot print control characters from stored text.

    Nor can any print what the terminal cannot encode.
    """
    instance = echo.enqueue(text="x")
    queue.cancel(instance, by="漢")
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    call_command("atp", "show", str(instance.uuid), stdout=terminal)
    terminal.flush()
    assert rb"\u6f22" in terminal.buffer.getvalue()

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


# check: see docs/check.md


def check(*args):
    """Run the check; return its exit status, its output and its error message."""
    out = io.StringIO()
    try:
        call_command("atp", "check", *args, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


def test_check_subcommand_restores_a_missing_task_and_reports_the_repair(world):
    """G1: the Instance is in the queue again, and its log names the actor."""
    instance = echo.enqueue()
    Task.objects.all().delete()
    age(instance.pk)
    status, shown, complaint = check("--dry-run")
    assert (status, complaint) == (1, "Found: 1, repaired: 0.")
    assert str(instance.uuid) in shown
    assert not Task.objects.exists()
    status, shown, complaint = check()
    assert (status, complaint) == (1, "Found: 1, repaired: 1.")
    assert "it was given a Task" in shown
    assert instance.log.last().who == actor()
    assert check()[0] == 0


@pytest.mark.slow
def test_check_subcommand_reports_a_task_that_is_long_due_until_it_is_claimed(world, host):
    settle(host)
    instance = echo.enqueue()
    age(instance.pk)
    found = json.loads(check("--json")[1])
    [finding] = found["findings"]
    assert (finding["trouble"], finding["done"]) == ("unclaimed", "")
    assert [key for key in keys(found) if f"`{key}`" not in section("check")] == []
    for _ in range(2):
        status, shown, complaint = check()
        assert (status, complaint) == (1, "Found: 1, repaired: 0.")
        assert "due for long and not claimed" in shown
        assert "! Work of Type 'tests.echo' has been due for" in run("status")
    host.claim()
    assert check() == (0, "Nothing was found.\n", "")
    assert "!" not in run("status")


@pytest.fixture
def graph(full):
    return full.graph()


def test_graphs_subcommand_lists_and_filters_graphs(graph):
    submitted("other", {"only": echo})
    other, first = run("graphs").splitlines()[1:]
    assert other.split()[1:4] == ["other", "waiting", "1"]
    assert f"{GRAPH}  running      6  2 finished, 1 failed, 1 running, 2 accepted" in first
    assert len(document("graphs", "--limit", "1")["graphs"]) == 1
    assert len(document("graphs", "--live")["graphs"]) == 2
    [found] = document("graphs", "--name", GRAPH)["graphs"]
    assert found["uuid"] == str(graph.uuid)
    assert run("graphs", "--name", "none").strip() == "There are no such graphs."


@pytest.mark.slow
def test_graph_subcommand_shows_a_list_or_a_flowchart(graph, monkeypatch):
    """A graph that is too large to draw is summarized by counts."""
    lines = run("graph", "show", str(graph.uuid)).splitlines()
    assert f"name     {GRAPH}" in lines
    [start] = [number for number, line in enumerate(lines) if line.startswith("node ")]
    assert [re.sub(r"(?<=\S)  +", "  ", line) for line in lines[start + 1 :]] == [
        "fetch  tests.echo  finished",
        "  part-0  tests.echo  finished  after fetch",
        "  part-1  tests.echo  failed (error)  after fetch",
        "  part-2  tests.echo  running  after fetch",
        "    merge  tests.echo  accepted, waits for 1  after part-0 and 2 others",
        f"      {MARKUP}  tests.echo  accepted, waits for 1  after merge",
    ]
    assert run("graph", "show", str(graph.uuid), "--mermaid").startswith("flowchart LR\n")
    refused("cannot be used with --json", "graph", "show", str(graph.uuid), "--mermaid", "--json")
    merge = Instance.objects.get(node__graph=graph, node__name="merge")
    shown = run("show", str(merge.uuid))
    assert "waits for    It waits for part-2." in shown
    assert "9999" not in shown
    monkeypatch.setattr(reports, "MOST_NODES", 5)
    shown = run("graph", "show", str(graph.uuid))
    assert "is not drawn" in shown
    assert "2 finished" in shown
    refused("is not drawn", "graph", "show", str(graph.uuid), "--mermaid")


def test_graph_subcommand_redrives_and_cancels_and_logs_who_did_it(graph):
    assert run("graph", "redrive", str(graph.uuid)) == "Nodes back in the queue: 1.\n"
    refused("FAILED", "graph", "redrive", str(graph.uuid))
    assert "Nodes cancelled: 4." in run("graph", "cancel", str(graph.uuid)[:23])
    nodes = Instance.objects.filter(node__graph=graph)
    assert nodes.filter(reason=Reason.CANCELLED).count() == 3
    assert {nodes.get(node__name=n).log.last().who for n in ("part-1", "part-2")} == {actor()}


def test_graph_subcommand_finds_a_graph_by_a_uuid_prefix(graph):
    assert run("graph", "show", str(graph.uuid)[:23]) == run("graph", "show", str(graph.uuid))
    Graph.objects.filter(pk=graph.pk).update(uuid="01234567-89ab-7000-8000-000000000000")
    other = submitted("other", {"only": echo})
    Graph.objects.filter(pk=other.pk).update(uuid="01234567-89ab-7000-8000-000000000001")
    for given, told in (("01234567", "[Mm]ore than one"), ("00000000", "There is no graph")):
        refused(told, "graph", "show", given)
