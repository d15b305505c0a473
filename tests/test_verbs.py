"""The table of verbs: each surface has each verb, and all of them agree."""

import importlib
import re
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import clear_url_caches
from drf_spectacular.generators import SchemaGenerator

from atp import models, queue
from atp.api import instances, resources, serializers
from atp.api import urls as api_urls
from atp.deadletters import api as deadletters_api
from atp.downstreams.operations import DownstreamState
from atp.graphs import api as graphs_api
from atp.models import Instance, LogRecord, Schedule, Task
from atp.operations import operation as kinds
from atp.operations import table
from atp.operations.operation import GateState, Inputs, Parameter, Past
from atp.operations.table import INSTANCE, OPERATIONS, TARGET, InstanceOperation, Level
from atp.schedules import api as schedules_api
from atp.states import State
from atp.store import get_store
from atp.tailers import api as tailers_api
from atp.tailers.operations import Position, Shard

from . import generated, urls
from .api import client as client_of_api
from .app.tasks import add
from .app.tasks_downstream import call
from .clock import wait_for_moment
from .populated import populate, world_in
from .surfaces import Admin, Pages, RestApi, Shell

# Those on error groups, and on all that matches, are in tests/deadletters/test_surfaces.py:
# they need dead letters, and answer with a plan or with an Instance.
KINDS = sorted(OPERATIONS.keys() - {table.MATCHING, table.ERROR})
# Values that a kind refuses, as text and as JSON.
BAD = {
    kinds.Text: ["a\nb", "x" * 201],
    kinds.WholeNumber: ["high", "1.5", "99999999999"],
    kinds.Number: ["heavy", "nan", "-1"],
    kinds.Rate: ["5/parsec", "0/s"],
    kinds.Moment: ["soon", "9999-99-99T00:00Z"],
    Past: ["soon", "1h"],
    kinds.Delay: ["2030-01-31", "-5s"],
    GateState: ["ajar"],
    DownstreamState: ["ajar"],
    Shard: ["a\nb", "x" * 401],
    Position: ["a\nb", "x" * 1001],
    kinds.Choice: ["perhaps"],
    Inputs: ["[1]", "{"],
}
# Values that each parameter takes.
GOOD = {
    "priority": "7",
    "due": "2100-01-31T18:00+00:00",
    "collection": "books",
    "reason": "the relay is down",
    "until": "2100-01-31T18:00+00:00",
    "expected": "open",
    "every": "5m",
    "timezone": "Europe/Vienna",
    "missed": "all",
    "most": "7",
    "window": "2d",
    "late_after": "5m",
    "overlap": "skip",
    "jitter": "5s",
    "start_before": "2h",
    "timeout": "90s",
    "inputs": '{"a": 1}',
    "start": "2026-01-01T00:00+00:00",
    "end": "2026-01-02T00:00+00:00",
    "max_running": "3",
    "rate": "5/s",
    "burst": "2",
    "weight": "2.5",
    "note": "for ann",
    "ceiling": "20",
    "floor": "0.5",
    "shard": "a",
    "position": "5",
}
# An Instance's state in which each verb is of use.
OF_STATE = {
    "redrive": State.FAILED,
    "release": State.RUNNING,
    "pause": State.RUNNING,
    "resume": State.PAUSED,
    "run-now": State.ACCEPTED,
    "change": State.ACCEPTED,
    "cancel": State.RUNNING,
    "delete": State.FINISHED,
}


@pytest.fixture
def full(db, tmp_path, media):
    with world_in(tmp_path) as world:
        yield populate(world)


@pytest.fixture
def surfaces(client, db):
    """Those that have the verbs, by their names."""
    client.force_login(User.objects.create_superuser("root", password="secret"))
    return {each.name: each for each in (Shell(), Pages(client), RestApi(), Admin(client))}


def schedule_of(verb):
    name = "of-the-code" if verb.name == "leave" else "of-the-tests"
    if name == "of-the-tests":
        queue.create_schedule(name, "tests.echo", every=3600, by="tests")
    else:
        queue.change_schedule(name, jitter=5, by="tests")
    if verb.name == "resume":
        queue.pause_schedule(name, by="tests")
    return queue.get_schedule(name)


def downstream_of(verb):
    queue.register(call, by="tests")
    if verb.name == "reset":
        queue.trip_downstream("relay", by="tests")
    return queue.get_downstream("relay")


def daemon_of(verb, full):
    if verb.name == "resume":
        queue.command(full.host.uuid, "quiet")
    return full.host.row


def subject_of(kind, verb, full):
    """Return something on which the verb makes a difference."""
    made = {
        table.SCHEDULE: lambda: schedule_of(verb),
        table.GRAPH: full.graph,
        table.DOWNSTREAM: lambda: downstream_of(verb),
        table.TAILER: full.tailer,
        table.TARGET: lambda: ("tests.add", None),
        table.DAEMON: lambda: daemon_of(verb, full),
        table.INSTANCE: lambda: full[OF_STATE.get(verb.name, State.ACCEPTED)],
    }
    return made[kind]()


# Who it was, and when; the last Instance has another key where a transaction was undone.
_VOLATILE = {"who", "since", "paused_since", "paused_by", "last_id", "planned_until"}
_WRITTEN = {
    models.Daemon: ("pk", "request"),
    models.Gate: ("type", "collection", "mode", "reason", "until"),
    models.Graph: ("pk", "ended", "request"),
    models.Downstream: ("state", "ceiling", "floor", "trips"),
    models.Cursor: ("tailer", "shard", "position"),
    models.Limit: ("type", "max_running", "rate", "burst", "weight", "is_set"),
}


def done():
    """All that a verb may have written, but for who did it, and when."""
    log = LogRecord.objects.order_by("pk").values_list("instance", "subject", "kind", "message")
    states = Instance.objects.order_by("pk").values_list("pk", "state", "priority")
    tasks = Task.objects.order_by("pk").values_list("pk", "request", "collection")
    # By their order: one that is made again after a transaction was undone has another key.
    number = {key: number for number, (key, *_) in enumerate(states)}
    return {
        "log": [(number.get(of), *(_timeless(value) for value in row)) for of, *row in log],
        "states": [(number[key], *row) for key, *row in states],
        "tasks": [(number[key], *row) for key, *row in tasks],
        "schedules": [
            {name: value for name, value in row.items() if name not in _VOLATILE}
            for row in Schedule.objects.values()
        ],
        **{
            model: list(model.objects.order_by("pk").values_list(*columns))
            for model, columns in _WRITTEN.items()
        },
    }


def _timeless(value):
    if not isinstance(value, str):
        return value
    value = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?( UTC)?", "TIME", value)
    value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", value)
    return re.sub(r"user [\w ]+ via \w+", "WHO", value)


@contextmanager
def undone():
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.parametrize("kind", KINDS)
def test_each_surface_does_what_the_table_says(kind, full, surfaces):
    """The same rows and the same log, whoever uses it, and where."""
    # A slot that came between two of them would be enqueued by one of them.
    wait_for_moment(
        get_store().now, lambda now: (now.minute, now.second) < (59, 30), "a moment within an hour"
    )
    problems = []
    for verb in OPERATIONS[kind].values():
        given = {p.name: GOOD[p.name] for p in verb.parameters if p.name in GOOD and p.in_forms}
        values = {
            p.name: p.kind.from_text(given[p.name]) for p in verb.parameters if p.name in given
        }
        with undone():
            subject = subject_of(kind, verb, full)
            before = done()
            with undone():
                verb.perform(subject, "user ann via tests", **values)
                wanted = done()
            if wanted == before and verb.name not in ("purge", "open", "unlimit", "backfill"):
                problems.append((verb.name, "does nothing"))
            for name, surface in surfaces.items():
                # The admin has the verbs that need nothing but their subject.
                if name == "admin" and not Admin.offers(kind, verb):
                    continue
                with undone():
                    if kind == INSTANCE:
                        subject.refresh_from_db()
                    answer = surface.use(kind, verb, subject, given)
                    if not answer.is_done:
                        problems.append((verb.name, name, answer.words))
                    elif done() != wanted:
                        problems.append((verb.name, name, done(), wanted))
    assert problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_surface_refuses_the_same(kind, full, surfaces):
    """G13: a bad value, or one of a parameter that there is not, is refused and nothing written."""
    taken = []
    for number, verb in enumerate(OPERATIONS[kind].values()):
        needed = {each.name: GOOD[each.name] for each in verb.parameters if each.is_required}
        with undone():
            subject, before = subject_of(kind, verb, full), full.world.snapshot()
            for name in ("shell", "page", "API"):
                parameters = [p for p in verb.parameters if p.in_forms or name != "page"]
                given = [{p.name: bad} for p in parameters for bad in BAD[type(p.kind)]]
                answers = [(each, surfaces[name].use(kind, verb, subject, each)) for each in given]
                if number == 0:
                    unknown = {**needed, "colour": "red"}
                    answer = surfaces[name].use(kind, verb, subject, unknown)
                    assert "colour" in answer.words
                    answers.append((unknown, answer))
                taken += [(verb.name, name, each) for each, answer in answers if answer.is_done]
            assert full.world.snapshot() == before, verb.name
    assert taken == []


# A new verb is one entry


@pytest.fixture
def anew(monkeypatch):
    """Return a function that lets the API read the table again, as when a process starts."""
    # All of the API, or its parts would tell apart what each has read.
    features = [deadletters_api, graphs_api, schedules_api, tailers_api]
    modules = [serializers, instances, resources, *features, api_urls, urls]

    def read():
        for module in modules:
            importlib.reload(module)
        clear_url_caches()
        client_of_api.openapi.cache_clear()

    yield read
    monkeypatch.undo()
    read()


def test_one_more_entry_is_on_each_surface_and_in_the_docs(full, surfaces, monkeypatch, anew):
    """First without a parameter, then with one."""
    calls = []

    def flag(subject, by, **values):
        calls.append((subject, values))

    verb = InstanceOperation(
        name="flag",
        label="Flag",
        explanation="Mark it for a colleague.",
        states=frozenset(State),
        call=flag,
        told=lambda *_: "It is flagged.",
    )
    monkeypatch.setitem(OPERATIONS[INSTANCE], "flag", verb)
    anew()
    instance = full[State.FINISHED]
    for surface in surfaces.values():
        answer = surface.use(INSTANCE, verb, instance, {})
        assert answer.is_done, answer.words
    assert calls == [(instance, {})] * 4
    page = surfaces["page"]._client.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert f'action="/atp/instances/{instance.uuid}/flag/"' in page
    calls.clear()
    note = Parameter(name="note", kind=kinds.Text(), help="What for.")
    verb = replace(verb, parameters=(note,))
    monkeypatch.setitem(OPERATIONS[INSTANCE], "flag", verb)
    anew()
    for name in ("shell", "page", "API"):
        assert surfaces[name].use(INSTANCE, verb, instance, {"note": "for ann"}).is_done
        assert not surfaces[name].use(INSTANCE, verb, instance, {"note": "a\nb"}).is_done
    assert calls == [(instance, {"note": "for ann"})] * 3
    form = surfaces["page"]._client.get(f"/atp/instances/{instance.uuid}/flag/").content.decode()
    assert 'name="note"' in form
    assert "Mark it for a colleague." in form
    assert "| **Flag**: Mark it for a colleague. | instance | `note` |" in generated.verbs()
    document = SchemaGenerator().get_schema(request=None, public=True)
    operation = document["paths"]["/atp/api/instances/{uuid}/flag"]["post"]
    assert operation["operationId"] == "flag"
    name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    said = document["components"]["schemas"][name.rpartition("/")[2]]["properties"]["note"]
    assert said["description"] == "What for."


def test_a_verb_is_not_for_every_level(full, surfaces):
    lane = "tests.add", "books"
    assert Level.LANE not in OPERATIONS[TARGET]["purge"].levels
    for name in ("shell", "page"):
        assert not surfaces[name].use(TARGET, OPERATIONS[TARGET]["purge"], lane, {}).is_done
    assert add.enqueue(1, 2).state == State.ACCEPTED
