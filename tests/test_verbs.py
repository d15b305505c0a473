"""Tests that each user interface offers the operations of the table, and that all agree."""

import re
from contextlib import contextmanager

import pytest
from django.db import transaction

from atp import models, queue
from atp.downstreams.operations import DownstreamState
from atp.models import Instance, LogRecord, Schedule, Task
from atp.operations import operation as kinds
from atp.operations import table
from atp.operations.operation import GateState, Inputs, Past
from atp.operations.table import INSTANCE, OPERATIONS, TARGET, Level
from atp.states import State
from atp.store import get_store
from atp.tailers.operations import Position, Shard

from .app.tasks import add
from .app.tasks_downstream import call
from .clock import wait_for_moment
from .surfaces import Admin, Pages, RestApi, Shell

# Operations on error groups and bulk operations are tested in tests/deadletters/test_surfaces.py,
# because they need dead letters, and answer with a plan or with an Instance.
KINDS = sorted(OPERATIONS.keys() - {table.MATCHING, table.ERROR})
# Values that each kind of parameter refuses, as text and as JSON.
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
# A valid value of each parameter.
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
    "max_running_per_collection": "2",
    "max_waiting": "6",
    "max_wait": "20m",
    "rate": "5/s",
    "burst": "2",
    "weight": "2.5",
    "note": "for ann",
    "ceiling": "20",
    "floor": "0.5",
    "shard": "a",
    "position": "5",
    "pid": "1",
}
# It ends a session of PostgreSQL and needs one that blocks: see tests/test_health.py.
ELSEWHERE = {"end-session"}
# A state of an Instance in which the operation has an effect.
OF_STATE = {
    "redrive": State.FAILED,
    "release": State.RUNNING,
    "pause": State.RUNNING,
    "resume": State.PAUSED,
    "stack": State.RUNNING,
    "run-now": State.ACCEPTED,
    "change": State.ACCEPTED,
    "cancel": State.RUNNING,
    "delete": State.FINISHED,
}


@pytest.fixture
def surfaces(admin_client):
    """Return the user interfaces that offer the operations, by their names."""
    every = Shell(), Pages(admin_client), RestApi(), Admin(admin_client)
    return {each.name: each for each in every}


def subject_of(kind, verb, full):
    """Return a target on which the operation has an effect."""
    if kind == table.SCHEDULE:
        return schedule_of(verb)
    if kind == table.DOWNSTREAM:
        queue.register(call, by="tests")
        if verb.name == "reset":
            queue.trip_downstream("relay", by="tests")
        return queue.get_downstream("relay")
    if kind == table.DAEMON and verb.name == "resume":
        queue.command(full.host.uuid, "quiet")
    return {
        table.GRAPH: full.graph,
        table.TAILER: full.tailer,
        table.TARGET: lambda: ("tests.add", None),
        table.DAEMON: lambda: full.host.row,
        table.INSTANCE: lambda: full[OF_STATE.get(verb.name, State.ACCEPTED)],
    }[kind]()


def schedule_of(verb):
    name = "of-the-code" if verb.name == "leave" else "of-the-tests"
    if name == "of-the-tests":
        queue.create_schedule(name, "tests.echo", every=3600, by="tests")
    else:
        queue.change_schedule(name, jitter=5, by="tests")
    if verb.name == "resume":
        queue.pause_schedule(name, by="tests")
    return queue.get_schedule(name)


LIMITS = ("max_running", "max_running_per_collection", "rate", "burst", "weight")
LIMITS += ("max_waiting", "max_wait")
# Columns that differ between calls: actors, times, and the key of the last Instance.
_VOLATILE = {"who", "since", "paused_since", "paused_by", "last_id", "planned_until"}
_WRITTEN = {
    models.Daemon: ("pk", "request"),
    models.Gate: ("type", "collection", "mode", "reason", "until"),
    models.Graph: ("pk", "ended", "request"),
    models.Downstream: ("state", "ceiling", "floor", "trips"),
    models.Cursor: ("tailer", "shard", "position"),
    models.Limit: ("type", *LIMITS, "is_set"),
}


def done():
    """Return all that an operation might have written, except for its actor and its time."""
    log = LogRecord.objects.order_by("pk").values_list("instance", "subject", "kind", "message")
    states = Instance.objects.order_by("pk").values_list("pk", "state", "priority")
    tasks = Task.objects.order_by("pk").values_list("pk", "request", "collection")
    # Instances by their order, because a rollback changes the keys of new rows.
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_operation_writes_the_same_rows_in_each_user_interface(kind, full, surfaces):
    # If a slot came due between two calls, only one of the calls would enqueue it.
    wait_for_moment(
        get_store().now, lambda now: (now.minute, now.second) < (59, 30), "a moment within an hour"
    )
    problems = []
    for verb in OPERATIONS[kind].values():
        if verb.name in ELSEWHERE:
            continue
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
                # The admin offers only operations that need no parameter.
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_user_interface_refuses_invalid_values(kind, full, surfaces):
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


def test_purge_of_a_lane_is_refused_in_the_shell_and_on_the_page(full, surfaces):
    lane = "tests.add", "books"
    assert Level.LANE not in OPERATIONS[TARGET]["purge"].levels
    for name in ("shell", "page"):
        assert not surfaces[name].use(TARGET, OPERATIONS[TARGET]["purge"], lane, {}).is_done
    assert add.enqueue(1, 2).state == State.ACCEPTED
