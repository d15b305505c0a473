"""The table of verbs: each surface has each verb, and all of them agree."""

import importlib
import re
from argparse import ArgumentParser
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import clear_url_caches
from drf_spectacular.generators import SchemaGenerator

from atp import queue
from atp.api import instances, serializers
from atp.api import urls as api_urls
from atp.models import (
    Cursor,
    Daemon,
    Downstream,
    Gate,
    Graph,
    Instance,
    Limit,
    LogRecord,
    Schedule,
    Task,
)
from atp.shell.verbs import add_parameters
from atp.states import State
from atp.store import get_store
from atp.verbs.table import (
    DAEMON,
    DOWNSTREAM,
    ERROR,
    GRAPH,
    INSTANCE,
    MATCHING,
    SCHEDULE,
    SCOPE,
    TAILER,
    VERBS,
)
from atp.verbs.table.downstreams import DownstreamState
from atp.verbs.table.gate_state import GateState
from atp.verbs.table.inputs import Inputs
from atp.verbs.table.instances import InstanceVerb
from atp.verbs.table.past_moment import Past
from atp.verbs.table.scopes import Level
from atp.verbs.table.tailers import Position, Shard
from atp.verbs.table.verb import Parameter
from atp.words import kinds

from . import generated, urls
from .api import client as client_of_api
from .app.tasks import add
from .app.tasks_downstream import call
from .clock import wait_for_moment
from .populated import populate, world_in
from .surfaces import Admin, Pages, RestApi, Shell

# Those on error groups, and on all that matches, are in tests/deadletters/test_surfaces.py:
# they need dead letters, and answer with a plan or with an Instance.
APART = (MATCHING, ERROR)
ENTRIES = [(kind, name) for kind, verbs in VERBS.items() for name in verbs if kind not in APART]
SURFACES = ("shell", "page", "API", "admin")
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
WITH_PARAMETERS = [(kind, name) for kind, name in ENTRIES if VERBS[kind][name].parameters]
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
def surface(request, client):
    """Return a function that gives a surface by its name."""

    def named(name):
        if name in ("shell", "API"):
            return Shell() if name == "shell" else RestApi()
        client.force_login(User.objects.create_superuser("root", password="secret"))
        return Pages(client) if name == "page" else Admin(client)

    return named


def schedule_of(verb):
    """Return a schedule on which the verb makes a difference."""
    name = "of-the-code" if verb.name == "leave" else "of-the-tests"
    if name == "of-the-tests":
        queue.create_schedule(name, "tests.echo", every=3600, by="tests")
    else:
        queue.change_schedule(name, jitter=5, by="tests")
    if verb.name == "resume":
        queue.pause_schedule(name, by="tests")
    return queue.get_schedule(name)


def downstream_of(verb):
    """Return a downstream on which the verb makes a difference."""
    queue.register(call, by="tests")
    if verb.name == "reset":
        queue.trip_downstream("relay", by="tests")
    return queue.get_downstream("relay")


def subject_of(kind, verb, full):
    if kind == SCHEDULE:
        return schedule_of(verb)
    if kind == GRAPH:
        return full.graph()
    if kind == DOWNSTREAM:
        return downstream_of(verb)
    if kind == TAILER:
        return full.tailer()
    if kind == SCOPE:
        return "tests.add", None
    if kind == DAEMON:
        if verb.name == "resume":
            queue.command(full.host.uuid, "quiet")
        return full.host.row
    return full[OF_STATE.get(verb.name, State.ACCEPTED)]


def done(kind, verb, full):
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
        "daemons": list(Daemon.objects.values_list("pk", "request")),
        "gates": list(Gate.objects.values_list("type", "collection", "mode", "reason", "until")),
        "graphs": list(Graph.objects.values_list("pk", "ended", "request")),
        "schedules": [
            {name: value for name, value in row.items() if name not in _VOLATILE}
            for row in Schedule.objects.values()
        ],
        "downstreams": list(Downstream.objects.values_list("state", "ceiling", "floor", "trips")),
        "cursors": list(Cursor.objects.values_list("tailer", "shard", "position")),
        "limits": list(
            Limit.objects.values_list("type", "max_running", "rate", "burst", "weight", "is_set")
        ),
    }


# Who it was, and when; the last Instance has another key where a transaction was undone.
_VOLATILE = {"who", "since", "paused_since", "paused_by", "last_id", "planned_until"}


def _timeless(value):
    if not isinstance(value, str):
        return value
    value = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?( UTC)?", "TIME", value)
    value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", value)
    return re.sub(r"user [\w ]+ via \w+", "WHO", value)


class _Undone(Exception):
    pass


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize(("kind", "verb"), ENTRIES)
def test_each_surface_does_what_the_table_says(kind, verb, name, full, surface):
    """The same rows and the same log, whoever uses it, and where."""
    verb = VERBS[kind][verb]
    if name == "admin" and not Admin.offers(kind, verb):
        pytest.skip("the admin has the verbs that need nothing but their subject")
    given = {p.name: GOOD[p.name] for p in verb.parameters if p.name in GOOD and p.in_forms}
    # A slot that came between the two would be enqueued by one of them.
    wait_for_moment(
        get_store().now, lambda now: (now.minute, now.second) < (59, 50), "a moment within an hour"
    )
    subject = subject_of(kind, verb, full)
    try:
        with transaction.atomic():
            values = {
                p.name: p.kind.from_text(given[p.name]) for p in verb.parameters if p.name in given
            }
            verb.perform(subject, "user ann via tests", **values)
            wanted = done(kind, verb, full)
            raise _Undone
    except _Undone:
        pass
    if kind == INSTANCE:
        subject.refresh_from_db()
    before = done(kind, verb, full)
    answer = surface(name).use(kind, verb, subject, given)
    assert answer.is_done, answer.words
    assert done(kind, verb, full) == wanted
    assert wanted != before or verb.name in ("purge", "open", "unlimit", "backfill")


@pytest.mark.parametrize("name", ["shell", "page", "API"])
@pytest.mark.parametrize(("kind", "verb"), WITH_PARAMETERS)
def test_each_surface_refuses_the_same(kind, verb, name, full, surface):
    """G13: a bad value is refused, and nothing is written."""
    verb, used = VERBS[kind][verb], surface(name)
    subject, before = subject_of(kind, verb, full), full.world.snapshot()
    parameters = [p for p in verb.parameters if p.in_forms or name != "page"]
    given = [(p.name, bad) for p in parameters for bad in BAD[type(p.kind)]]
    taken = [pair for pair in given if used.use(kind, verb, subject, dict([pair])).is_done]
    assert taken == []
    assert full.world.snapshot() == before


@pytest.mark.parametrize("name", ["shell", "page", "API"])
@pytest.mark.parametrize("kind", sorted(VERBS.keys() - {*APART}))
def test_each_surface_refuses_a_parameter_that_there_is_not(kind, name, full, surface):
    """G13."""
    verb = next(iter(VERBS[kind].values()))
    subject, before = subject_of(kind, verb, full), full.world.snapshot()
    needed = {each.name: GOOD[each.name] for each in verb.parameters if each.is_required}
    answer = surface(name).use(kind, verb, subject, {**needed, "colour": "red"})
    assert not answer.is_done
    assert "colour" in answer.words
    assert full.world.snapshot() == before


# A new verb is one entry


@pytest.fixture
def anew(monkeypatch):
    """Return a function that lets the API read the table again, as when a process starts."""
    modules = [serializers, instances, api_urls, urls]

    def read():
        for module in modules:
            importlib.reload(module)
        clear_url_caches()
        client_of_api.openapi.cache_clear()

    yield read
    monkeypatch.undo()
    read()


@pytest.fixture
def flagged(monkeypatch, anew):
    """What one more entry is called with."""
    calls = []

    def call(subject, by, **values):
        calls.append((subject, values))

    entry = InstanceVerb(
        name="flag",
        label="Flag",
        explanation="Mark it for a colleague.",
        states=frozenset(State),
        call=call,
        told=lambda *_: "It is flagged.",
    )
    monkeypatch.setitem(VERBS[INSTANCE], "flag", entry)
    anew()
    return calls


@pytest.fixture
def with_a_note(flagged, monkeypatch, anew):
    """The same, if the entry has a parameter."""
    note = Parameter(name="note", kind=kinds.Text(), help="What for.")
    entry = replace(VERBS[INSTANCE]["flag"], parameters=(note,))
    monkeypatch.setitem(VERBS[INSTANCE], "flag", entry)
    anew()
    return flagged


@pytest.mark.parametrize("name", SURFACES)
def test_one_more_entry_is_on_each_surface(name, flagged, full, surface):
    instance = full[State.FINISHED]
    answer = surface(name).use(INSTANCE, VERBS[INSTANCE]["flag"], instance, {})
    assert answer.is_done, answer.words
    assert flagged == [(instance, {})]


@pytest.mark.parametrize("name", ["shell", "page", "API"])
def test_its_parameter_is_on_each_surface(name, with_a_note, full, surface):
    instance, verb = full[State.FINISHED], VERBS[INSTANCE]["flag"]
    used = surface(name)
    assert used.use(INSTANCE, verb, instance, {"note": "for ann"}).is_done
    assert with_a_note == [(instance, {"note": "for ann"})]
    assert not used.use(INSTANCE, verb, instance, {"note": "a\nb"}).is_done


def test_it_has_a_button(flagged, full, surface):
    instance = full[State.FINISHED]
    page = surface("page")._client.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert f'action="/atp/instances/{instance.uuid}/flag/"' in page


def test_it_has_a_form_if_it_takes_parameters(with_a_note, full, surface):
    path = f"/atp/instances/{full[State.FINISHED].uuid}/flag/"
    page = surface("page")._client.get(path).content.decode()
    assert 'name="note"' in page
    assert "Mark it for a colleague." in page


def test_it_is_in_the_docs(with_a_note):
    assert "| **Flag**: Mark it for a colleague. | instance | `note` |" in generated.verbs()


def test_it_is_in_the_openapi_document(with_a_note, full):
    document = SchemaGenerator().get_schema(request=None, public=True)
    operation = document["paths"]["/atp/api/instances/{uuid}/flag"]["post"]
    assert operation["operationId"] == "flag"
    name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    said = document["components"]["schemas"][name.rpartition("/")[2]]["properties"]["note"]
    assert said["description"] == "What for."


def test_a_verb_is_not_for_every_level(full, surface):
    lane = "tests.add", "books"
    assert Level.LANE not in VERBS[SCOPE]["purge"].levels
    for name in ("shell", "page"):
        assert not surface(name).use(SCOPE, VERBS[SCOPE]["purge"], lane, {}).is_done
    assert add.enqueue(1, 2).state == State.ACCEPTED


@pytest.mark.parametrize(
    ("help", "kind", "shown"),
    [
        ("Only those that wait.", kinds.Text(), "only those that wait"),
        ("FAILED for this reason.", kinds.Text(), "FAILED for this reason"),
        ("A time.", kinds.Delay(), f"a time ({kinds.Delay.hint})"),
    ],
)
def test_the_help_of_a_parameter_in_the_shell(help, kind, shown):
    """A name in capitals stays as it is, and the form stands in parentheses."""
    parser = ArgumentParser()
    add_parameters(parser, [Parameter(name="value", kind=kind, help=help)])
    [*_, action] = parser._actions
    assert action.help == shown
