"""The lists and documents of Types, Instances, Tasks and daemons, and who sees what (G14)."""

from datetime import datetime
from itertools import groupby
from operator import itemgetter

import pytest

from atp import queue
from atp.models import Inputs, Instance, Task, Type
from atp.operations.table import allowed_operations
from atp.reports import documents, paging
from atp.states import CLAIMED, State

from ..app.tasks import add, echo
from ..populated import HOSTILE
from .client import ROOT, Api, fields, refusal


def uuids(answer):
    return [each["uuid"] for each in answer.json()["results"]]


def test_types_are_listed_and_described(api, elsewhere):
    """An unknown Type returns 404 with a suggestion (G13)."""
    names = [each["identifier"] for each in api.get("types").json()["results"]]
    assert "tests.echo" in names
    assert names == sorted(names)
    found = api.get("types/tests.add").json()
    assert (found["handler"], found["serializer"]) == ("tests.app.tasks.add", "json")
    numbers = ("timeout", "max_restarts", "max_retries", "backoff", "backoff_max", "retention")
    assert [found[name] for name in numbers] == [60.0, 1, 2, 0.1, 1.0, 86400.0]
    of_the_site = ("downstream", "owner", "runbook", "needs", "resources", "max_memory")
    given_by_nobody = (*of_the_site, "on_finished", "on_failed", "sensitive", "late_writes")
    assert not any(found[name] for name in given_by_nobody)
    assert list(found["outputs_schema"]) == ["$schema"]
    assert all(found[name] for name in ("registered", "declared", "inputs_schema"))
    Type.objects.filter(identifier="tests.add").delete()
    found = api.get("types/tests.add").json()
    assert (found["registered"], found["declared"]) == (None, True)
    assert api.get("types/tests.elsewhere").json()["declared"] is False
    for identifier in ("tests.ecko", "tests.echo%00", "%F0%9F%8E%81", "a" * 5000):
        assert refusal(api.get(f"types/{identifier}")) == (404, "unknown-type"), identifier[:20]
    assert "Did you mean 'tests.echo'?" in api.get("types/tests.ecko").json()["detail"]


def test_instance_document_shows_its_columns_and_actions(full, api):
    for state in State:
        instance = full[state]
        found = api.get(f"instances/{instance.uuid}").json()
        assert found["url"] == f"http://testserver{ROOT}instances/{instance.uuid}"
        assert found["actions"] == [
            verb.name
            for verb in allowed_operations(instance, queue.task(instance))
            if verb.method == "POST"
        ]
        is_live = state not in (State.FINISHED, State.FAILED)
        assert (found["due_at"] is not None) == is_live, state
        assert (found["daemon"] is not None) == (state in CLAIMED), state
        for name in documents.INSTANCE_FIELDS:
            expected = getattr(instance, name)
            if isinstance(expected, datetime):
                assert datetime.fromisoformat(found[name]) == expected
            elif name in ("uuid", "type"):
                assert found[name] == str(expected)
            else:
                assert found[name] == expected


def test_the_instance_list_is_newest_first_and_can_be_paged_backward(
    full, api, django_assert_max_num_queries
):
    """tests/test_paging.py inserts and deletes rows between two pages."""
    echo.enqueue_many([{}] * 20)
    with django_assert_max_num_queries(12):
        everything = uuids(api.get("instances"))
    newest_first = Instance.objects.order_by("-pk").values_list("uuid", flat=True)
    assert everything == [str(uuid) for uuid in newest_first]
    first = api.get("instances?limit=5").json()
    second = api.get(first["next"]).json()
    third = api.get(second["next"]).json()
    assert first["previous"] is None
    assert "limit=5" in second["previous"]
    assert api.get(third["previous"]).json()["results"] == second["results"]


def test_a_search_in_the_api_says_how_far_it_came(api, world, monkeypatch):
    monkeypatch.setattr(paging, "_FIRST_PORTION", 2)
    monkeypatch.setattr(paging, "_LONGEST", 0.0)
    made = [echo.using(created_by="ann" if n == 0 else "bob").enqueue() for n in range(3)]
    first = api.get("instances?created_by=ann").json()
    assert first["results"] == []
    assert datetime.fromisoformat(first["searched_to"]) == made[1].created
    second = api.get(first["next"]).json()
    assert [each["uuid"] for each in second["results"]] == [str(made[0].uuid)]
    assert second["searched_to"] is second["next"] is None


BAD = [
    # What each filter takes is shown in tests/web/test_filters.py.
    ("instances?stat=FAILED", "invalid-parameter", ["stat"], "Did you mean 'state'"),
    ("instances?state=FAILD", "invalid-selection", ["state"], "Did you mean 'FAILED'"),
    ("instances?state=", "invalid-parameter", ["state"], "has no value"),
    ("instances?state=FAILED&state=RUNNING", "invalid-parameter", ["state"], "more than once"),
    ("instances?created_after=2030-01-31T18:00", "invalid-parameter", ["created_after"], "offset"),
    ("instances?longer_than=x", "invalid-selection", ["longer_than"], "5m"),
    ("instances?input=alps", "invalid-selection", ["input"], "within one Type"),
    ("instances?limit=0", "invalid-parameter", ["limit"], "from 1 to 500"),
    ("instances?limit=%D9%A3", "invalid-parameter", ["limit"], "whole number"),
    ("instances?page=2", "invalid-page-key", [], "Begin with the first page"),
    ("instances?format=json", "invalid-parameter", ["format"], "There is no parameter"),
    ("tasks?claimed=maybe", "invalid-selection", ["claimed"], ""),
    ("tasks?state=RUNNING", "invalid-parameter", ["state"], ""),
    ("graphs?end=true", "invalid-parameter", ["end"], ""),
    ("graphs?name=", "invalid-parameter", ["name"], ""),
]


@pytest.mark.slow
def test_an_invalid_query_parameter_returns_400_and_is_named(full, api):
    # White space belongs to an identifier.
    made = str(echo.using(identifier=" a ").enqueue().uuid)
    assert uuids(api.get("instances?identifier=%20a%20")) == [made]
    assert uuids(api.get("instances?identifier=a")) == []
    for path, name, named, told in BAD:
        answer = api.get(path)
        assert refusal(answer) == (400, name), path
        assert told in answer.json()["detail"], path
        assert fields(answer) == named, path
    url = api.get("instances?limit=1").json()["next"]
    assert refusal(api.get(url.replace("instances", "tasks"))) == (400, "invalid-page-key")
    running = f"instances/{full[State.RUNNING].uuid}"
    for wait in ("-1", "60.1", "nan", "1_0", "1e9", "", "1,5"):
        answer = api.get(f"{running}?wait={wait}")
        assert (answer.status_code, fields(answer)) == (400, ["wait"]), wait
    for wait in ("0", "-0.0", "1e-300", "0.", "00.5"):
        assert api.get(f"{running}?wait={wait}").status_code == 200, wait


def test_an_empty_collection_parameter_selects_rows_without_a_collection(full, api):
    full.world.enqueue(type="tests.echo", collection="maps")
    for path in ("instances", "tasks"):
        every = api.get(f"{path}?limit=500").json()["results"]
        without = api.get(f"{path}?limit=500&collection=").json()["results"]
        assert without == [each for each in every if not each["collection"]]
        assert 0 < len(without) < len(every)


def arrivals(api, *items):
    answer = api.post("instances", [{"type": "tests.add", **item} for item in items])
    return [(each["is_new"], each["inputs_differ"]) for each in answer.json()]


def test_enqueue_reports_new_instances_and_differing_inputs(world, api, user_with):
    """Without ``view_inputs`` a user could otherwise guess inputs (G13, G14)."""
    old = {"identifier": "old", "existing": "return", "inputs": {"first": 1, "second": 2}}
    assert arrivals(api, old) == [(True, False)]
    again = old | {"inputs": {"second": 2, "first": 1}}
    other = old | {"inputs": {"first": 1, "second": 3}}
    twice = {"identifier": "a", "existing": "return", "inputs": [2]}
    new, differs = (True, False), (False, True)
    items = (again, other, {"inputs": [1]}, twice, twice | {"inputs": [1]})
    assert arrivals(api, *items) == [(False, False), differs, new, new, differs]
    blind = Api(user_with("view_instance", "enqueue", name="blind"))
    answer = blind.post("instances", {"type": "tests.add", **other})
    assert (answer.status_code, "inputs_differ" in answer.json()) == (200, False)
    # A pickle is not opened for the comparison.
    Inputs.objects.update(format="pickle", data="evil")
    assert api.post("instances", {"type": "tests.add", **other}).json()["inputs_differ"] is None


@pytest.mark.slow
def test_instance_shows_the_error_of_its_last_failure(full, api, user_with):
    """It might quote confidential inputs: see the log, or operate, to be told of it (G14)."""
    failed = full[State.FAILED].uuid
    [listed] = api.get(f"instances?state=FAILED&uuid={failed}").json()["results"]
    for told in (listed, api.get(f"instances/{failed}").json()):
        assert told["error"] == documents.headline(f"ValueError: {HOSTILE}")
    assert documents.headline("x" * 300) == "x" * 199 + "…"
    assert api.get(f"instances/{full[State.FINISHED].uuid}").json()["error"] is None
    for permission, is_told in (
        ("operate", True),
        ("view_logrecord", True),
        ("view_inputs", False),
    ):
        reader = Api(user_with("view_instance", permission, name=permission))
        told = reader.get("instances").json()["results"]
        told.append(reader.get(f"instances/{failed}").json())
        assert {"error" in each for each in told} == {is_told}, permission
    assert api.post(f"instances/{failed}/redrive").json()["error"] is None


def test_waiting_tasks_are_listed_in_claiming_order(world, api, django_assert_max_num_queries):
    for priority in (1, 2, 2, 3) * 3:
        echo.using(priority=priority).enqueue()
        add.using(priority=priority).enqueue(1)
    with django_assert_max_num_queries(12):
        rows = api.get("tasks").json()["results"]
    lanes = [list(lane) for _, lane in groupby(rows, key=itemgetter("type"))]
    assert [len(lane) for lane in lanes] == [12, 12]
    for lane in lanes:
        assert lane == sorted(lane, key=lambda row: (-row["priority"], row["due_at"]))


def test_task_list_shows_waiting_and_claimed_tasks(full, api):
    [found] = api.get("tasks").json()["results"]
    task = Task.objects.get(instance=full[State.ACCEPTED])
    assert (found["instance"], found["type"]) == (str(task.instance.uuid), "tests.add")
    assert (found["priority"], found["due_at"]) == (0, task.due_at.isoformat())
    others = ("collection", "start_before", "daemon", "attempt", "request")
    assert not any(found[name] for name in others)
    found = api.get("tasks?claimed=true").json()["results"]
    claimed = {str(full[s].uuid) for s in (State.SCHEDULED, State.RUNNING, State.PAUSED)}
    assert {each["instance"] for each in found} == claimed
    assert {each["daemon"] for each in found} == {"host:1"}


def test_daemons_and_their_work_are_hidden_without_permission(full, api, user_with):
    """Instances of workers need ``view_instance``, the key ``daemon`` needs ``view_daemon``."""
    uuid = str(full.host.uuid)
    [found] = api.get("daemons").json()["results"]
    assert (found["uuid"], found["condition"]) == (uuid, "alive")
    busy, idle = found["workers"]
    assert (busy["instance"], idle["instance"]) == (str(full[State.RUNNING].uuid), None)
    assert api.get(f"daemons/{uuid.upper()}").json()["types"] == ["tests.echo", "tests.add"]
    blind = Api(user_with("view_daemon", name="blind"))
    [found] = blind.get("daemons").json()["results"]
    for document in (found, blind.get(f"daemons/{uuid}").json()):
        assert {worker["instance"] for worker in document["workers"]} == {None}
        assert document["workers"][0]["type"]
    reader = Api(user_with("view_instance", "view_task", name="reader"))
    assert "daemon" not in reader.get(f"instances/{full[State.RUNNING].uuid}").json()
    [first, *_] = reader.get("tasks?claimed=true").json()["results"]
    assert "daemon" not in first
