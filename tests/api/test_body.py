"""``POST instances``: enqueueing one, or many."""

import json
from datetime import timedelta

import pytest
from django.test import override_settings

from atp.api import fields as api_fields
from atp.api.enqueueing import MAX_ITEMS
from atp.models import Instance
from atp.states import State

from ..populated import MARKUP
from .client import ROOT, Api, fields, problem

WHO = "user operator via API"


def latest():
    return Instance.objects.latest("pk")


def test_one(world, api):
    """The answer says where it is; whoever looks there is told why it may have to wait, too."""
    answer = api.post("instances", {"type": "tests.add", "inputs": {"first": 1}})
    made = latest()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"http://testserver{ROOT}instances/{made.uuid}"
    told = api.get(f"instances/{made.uuid}").json()
    assert told.pop("waits_for") == ["No daemon is alive."]
    assert told.pop("graph") is None
    assert (told.pop("hooks"), told.pop("hook_of")) == ([], None)
    arrived = {"is_new": True, "inputs_differ": False}
    assert answer.json() | {"due_at": told["due_at"], "daemon": None} == told | arrived
    assert made.inputs.value == {"first": 1}
    assert made.created_by == WHO
    assert made.log.get().who == WHO


def test_with_everything(world, api):
    body = {
        "type": "tests.keyword",
        "inputs": {"path": "ü", "scale": 2.5},
        "identifier": "A-1",
        "existing": "redrive",
        "priority": -7,
        "collection": "maps",
        "run_after": 5400,
        "start_before": "2100-01-31T18:00:00+01:00",
    }
    assert api.post("instances", body).status_code == 201
    made = latest()
    assert made.inputs.value == {"path": "ü", "scale": 2.5}
    assert (made.identifier, made.priority, made.collection) == ("A-1", -7, "maps")
    assert made.start_before.isoformat() == "2100-01-31T17:00:00+00:00"
    delay = made.task.due_at - world.store.now()
    assert abs(delay - timedelta(seconds=5400)) < timedelta(minutes=1)


def test_defaults_are_those_of_the_type(world, api):
    api.post("instances", {"type": "tests.keyword", "inputs": {"path": "a"}})
    assert (latest().priority, latest().collection) == (5, "books")


def test_a_whole_number_may_have_a_point(world, api):
    """JSON has one kind of number."""
    assert api.post("instances", {"type": "tests.echo", "priority": -3.0}).status_code == 201
    assert latest().priority == -3


def test_null_is_not_given(world, api):
    body = {"type": "tests.echo", "identifier": None, "run_after": None, "start_before": None}
    assert api.post("instances", body).status_code == 201
    assert (latest().identifier, latest().start_before) == (None, None)


@pytest.mark.parametrize("inputs", [[1, 2, 3], {"*": [1, 2, 3]}])
def test_inputs_by_position(world, api, inputs):
    assert api.post("instances", {"type": "tests.add", "inputs": inputs}).status_code == 201
    assert latest().inputs.value == {"*": [1, 2, 3]}


def test_tagged_values(world, api):
    inputs = {"day": {"$date": "2030-01-31"}, "amount": {"$decimal": "0.10"}}
    api.post("instances", {"type": "tests.echo", "inputs": inputs})
    value = latest().inputs.value
    assert (value["day"].isoformat(), str(value["amount"])) == ("2030-01-31", "0.10")
    assert api.get(f"instances/{latest().uuid}/inputs").json() == {
        "carried": {},
        "format": "json",
        "value": inputs,
    }


def test_many(world, api):
    items = [
        {"type": "tests.add", "inputs": {"first": 1}},
        {"type": "tests.echo", "identifier": "a", "priority": 3},
        {"type": "tests.add", "inputs": [2]},
    ]
    answer = api.post("instances", items)
    assert answer.status_code == 201
    assert "Location" not in answer.headers
    made = answer.json()
    assert [each["type"] for each in made] == ["tests.add", "tests.echo", "tests.add"]
    assert [each["identifier"] for each in made] == [None, "a", None]
    rows = Instance.objects.in_bulk([each["uuid"] for each in made], field_name="uuid")
    assert {row.log.get().who for row in rows.values()} == {WHO}


def test_as_many_as_possible(world, api, django_assert_max_num_queries):
    with django_assert_max_num_queries(60):
        answer = api.post("instances", [{"type": "tests.echo"}] * MAX_ITEMS)
    assert answer.status_code == 201
    assert Instance.objects.count() == MAX_ITEMS


def test_what_exists_already(full, api):
    """Nothing is made, and that is said by the status."""
    body = {"type": "tests.echo", "identifier": MARKUP, "existing": "return"}
    answer = api.post("instances", body)
    assert (answer.status_code, answer.json()["uuid"]) == (200, str(full[State.FAILED].uuid))
    assert answer.headers["Location"] == answer.json()["url"]
    assert api.post("instances", [body, body]).status_code == 200
    assert api.post("instances", [body, {"type": "tests.echo"}]).status_code == 201


def test_a_redrive_of_what_exists_says_who(full, api):
    """G6."""
    body = {"type": "tests.echo", "identifier": MARKUP, "existing": "redrive"}
    answer = api.post("instances", body)
    assert (answer.status_code, answer.json()["state"]) == (200, "ACCEPTED")
    assert full[State.FAILED].log.last().who == WHO


def test_an_identifier_that_is_taken(full, api):
    """G13."""
    before = full.world.snapshot()
    answer = api.post("instances", {"type": "tests.echo", "identifier": MARKUP})
    assert (answer.status_code, problem(answer)) == (409, "duplicate-identifier")
    assert fields(answer) == ["identifier"]
    assert str(full[State.FAILED].uuid) in answer.json()["detail"]
    other = {"type": "tests.add", "inputs": [1], "identifier": MARKUP}
    taken = {"type": "tests.echo", "identifier": MARKUP}
    answer = api.post("instances", [other, {"type": "tests.echo"}, taken])
    assert (answer.status_code, fields(answer)) == (409, ["[2].identifier"])
    answer = api.post("instances", [{**taken, "identifier": "b"}, {**taken, "identifier": "b"}])
    assert (answer.status_code, fields(answer)) == (409, ["[1].identifier"])
    assert full.world.snapshot() == before


def echoing(**more):
    return {"type": "tests.echo", **more}


BAD = [
    ({}, ["type"], "is required"),
    ("text", [], "JSON object"),
    ([], [], "1 to 1000 items, not 0"),
    ([echoing()] * (MAX_ITEMS + 1), [], "not 1001"),
    ([echoing(), 3, []], ["[1]", "[2]"], "JSON object"),
    ({"typ": "tests.echo"}, ["typ", "type"], "Did you mean 'type'"),
    ({"type": "tests.ecko"}, ["type"], "Did you mean 'tests.echo'"),
    ({"type": "tests.elsewhere"}, ["type"], "no handler"),
    ({"type": 3}, ["type"], "as text"),
    ({"type": ["tests.echo"]}, ["type"], "as text"),
    ({"type": "a\0b"}, ["type"], "declared"),
    ({"type": "\ud800"}, ["type"], "declared"),
    (echoing(priorty=3), ["priorty"], "Did you mean 'priority'"),
    (echoing(**{"\ud800": 3}), ["\ud800"], "There is no field"),
    (echoing(created_by="root"), ["created_by"], "There is no field"),
    (echoing(priority=101), ["priority"], "from -100 to 100"),
    (echoing(priority="high"), ["priority"], "whole number"),
    (echoing(priority=True), ["priority"], "whole number"),
    (echoing(priority=1.5), ["priority"], "whole number"),
    (echoing(priority=1e3), ["priority"], "from -100 to 100"),
    (echoing(priority=None), ["priority"], "whole number"),
    (echoing(identifier=""), ["identifier"], "must not be empty"),
    (echoing(identifier=3), ["identifier"], "must be text"),
    (echoing(identifier="a\nb"), ["identifier"], "printable"),
    (echoing(identifier="\ud800"), ["identifier"], "printable"),
    (echoing(identifier="x" * 201), ["identifier"], "200 are allowed"),
    (echoing(collection=None), ["collection"], "must be text"),
    (echoing(collection="a\0b"), ["collection"], "printable"),
    (echoing(identifier="a", existing="retrun"), ["existing"], "Did you mean 'return'"),
    (echoing(identifier="a", existing=["return"]), ["existing"], "is none of"),
    (echoing(existing="return"), ["existing"], "Give an identifier"),
    (echoing(run_after="soon"), ["run_after"], "no time with an offset"),
    (echoing(run_after="2030-01-31T18:00:00"), ["run_after"], "no time with an offset"),
    (echoing(run_after="2030-02-31T18:00:00Z"), ["run_after"], "no time with an offset"),
    (echoing(run_after="9999-12-31T23:59:59-01:00"), ["run_after"], "beyond"),
    (echoing(run_after="0001-01-01T00:00:00+01:00"), ["run_after"], "beyond"),
    (echoing(run_after=-1), ["run_after"], "from 0 to"),
    (echoing(run_after=1e300), ["run_after"], "from 0 to"),
    (echoing(run_after=True), ["run_after"], "as text, nor a number"),
    (echoing(run_after={"$datetime": "x"}), ["run_after"], "as text, nor a number"),
    (echoing(run_after=20, start_before=10), ["start_before"], "later than"),
    (echoing(inputs=3), ["inputs"], "JSON object"),
    (echoing(inputs=None), ["inputs"], "JSON object"),
    (echoing(inputs={"*": 1}), ["inputs"], "array"),
    (echoing(inputs=[1]), ["inputs"], "do not fit"),
    (echoing(inputs={"a": {"$date": "x"}}), ["inputs"], "Not the JSON"),
    (echoing(inputs={"a": {"$object": [[1, 2]]}}), ["inputs"], "text keys"),
    (echoing(inputs={"$object": [[1, 2]]}), ["inputs"], "names are text"),
    (echoing(inputs={"a": "\ud800"}), ["inputs"], "Unicode"),
    (echoing(inputs={"a": "x" * 1_100_000}), ["inputs"], "limit is"),
    (
        {"type": "tests.keyword", "inputs": {"paht": 1}},
        ["inputs.paht", "inputs.path"],
        "Did you mean 'path'",
    ),
    ({"type": "tests.keyword"}, ["inputs.path"], "missing"),
    (
        [echoing(), {"type": "tests.add", "inputs": {"frist": 1}}],
        ["[1].inputs.frist", "[1].inputs.first"],
        "'first'",
    ),
    ([echoing(), echoing(inputs=[1])], ["[1].inputs"], "do not fit"),
    ([echoing(a=1), echoing(b=2)], ["[0].a", "[1].b"], "no field 'b'"),
]


@pytest.mark.parametrize(("body", "named", "told"), BAD, ids=[json.dumps(b[0])[:50] for b in BAD])
def test_a_bad_body_is_an_error_and_nothing_is_written(full, elsewhere, api, body, named, told):
    """G13: it says what is wrong, and where."""
    before = full.world.snapshot()
    answer = api.post("instances", body)
    assert answer.status_code == 422
    assert told in answer.json()["detail"]
    assert fields(answer) == named
    assert full.world.snapshot() == before


@pytest.mark.parametrize("name", ["atp.redrive", "atp.cancel", "atp.delete", "atp.webhook"])
def test_types_that_belong_to_atp(world, user_with, name):
    """G14: whoever may enqueue may not, by that, delete all that match, or tell a target."""
    api = Api(user_with("view_type", "view_instance", "enqueue"))
    answer = api.post("instances", {"type": name, "inputs": {"selection": {}, "count": 1}})
    assert (answer.status_code, fields(answer)) == (422, ["type"])
    assert "belongs to ATP" in answer.json()["detail"]
    assert not Instance.objects.exists()


def test_not_everything_is_told_of_a_body_that_is_all_wrong(full, api):
    answer = api.post("instances", [{"type": "nothing"}] * 500)
    assert len(fields(answer)) == 20


def test_a_database_that_is_gone(world, api, monkeypatch):
    from django.db import OperationalError

    def gone(calls):
        raise OperationalError("could not connect to server at db.example")

    monkeypatch.setattr("atp.api.enqueueing.queue.enqueue_calls", gone)
    answer = api.post("instances", echoing())
    assert (answer.status_code, problem(answer)) == (503, "no-database")
    assert "example" not in answer.json()["detail"]


@pytest.mark.parametrize("limit", [100, None])
def test_a_body_of_any_length_if_the_project_says_so(world, api, limit):
    body = echoing(inputs={"a": "x" * 200})
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=limit):
        answer = api.post("instances", body)
    assert answer.status_code == (413 if limit else 201)


def test_of_many_unknown_names_few_are_looked_at(api, monkeypatch):
    """A hint at the closest name takes time."""
    hinted = []
    monkeypatch.setattr(api_fields, "did_you_mean", lambda *given: hinted.append(given) or "")
    answer = api.post("instances", {f"typ{number}": 1 for number in range(500)})
    assert (answer.status_code, len(answer.json()["errors"])) == (422, api_fields.MOST)
    assert len(hinted) <= api_fields.MOST


@pytest.mark.parametrize("field", ["priority", "collection", "run_after"])
def test_a_depth_that_can_be_read_and_not_written_is_no_fault(api, field):
    for depth in range(850, 960, 2 if field == "priority" else 7):
        body = f'{{"type": "tests.echo", "{field}": {"[" * depth}1{"]" * depth}}}'
        assert api.call("POST", "instances", body.encode()).status_code in (400, 422)


@pytest.mark.parametrize("given", [[["a", 1], ["a", 2]], ["ab"], [["a"]], [[1, 2]], [["a", 1, 2]]])
def test_an_object_in_pairs_has_each_name_once(api, given):
    answer = api.post("instances", {"type": "tests.echo", "inputs": {"a": {"$object": given}}})
    assert answer.status_code == 422
