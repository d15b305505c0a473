"""``POST instances`` enqueues one Instance or many."""

from datetime import timedelta

import pytest
from django.test import override_settings

from atp.api import schema
from atp.api.enqueueing import MAX_ITEMS
from atp.models import Instance
from atp.payload.json import MAX_DEPTH
from atp.states import State

from ..populated import MARKUP
from .client import ROOT, fields, refusal

WHO = "user operator via API"


def latest():
    return Instance.objects.latest("pk")


def test_post_enqueues_one_instance_and_returns_its_document(world, api):
    """The 201 response has the address; a GET there also says why the Instance waits."""
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


def test_every_option_in_the_body_reaches_the_instance(world, api):
    """Omitted options take the defaults of the Type. An explicit null counts as omitted."""
    body = {"type": "tests.keyword", "inputs": {"path": "ü", "scale": 2.5}}
    # JSON has one kind of number.
    body |= {"identifier": "A-1", "existing": "redrive", "priority": -7.0, "collection": "maps"}
    body |= {"run_after": 5400, "start_before": "2100-01-31T18:00:00+01:00"}
    assert api.post("instances", body).status_code == 201
    made = latest()
    assert made.inputs.value == {"path": "ü", "scale": 2.5}
    assert (made.identifier, made.priority, made.collection) == ("A-1", -7, "maps")
    assert made.start_before.isoformat() == "2100-01-31T17:00:00+00:00"
    delay = made.task.due_at - world.store.now()
    assert abs(delay - timedelta(seconds=5400)) < timedelta(minutes=1)
    nothing = {"identifier": None, "run_after": None, "start_before": None}
    body = {"type": "tests.keyword", "inputs": {"path": "a"}}
    for given in (body, body | nothing):
        assert api.post("instances", given).status_code == 201
        made = latest()
        assert (made.priority, made.collection) == (5, "books")
        assert (made.identifier, made.start_before) == (None, None)


def test_post_accepts_positional_inputs_and_tagged_values(world, api):
    for inputs in ([1, 2, 3], {"*": [1, 2, 3]}):
        assert api.post("instances", {"type": "tests.add", "inputs": inputs}).status_code == 201
        assert latest().inputs.value == {"*": [1, 2, 3]}
    inputs = {"day": {"$date": "2030-01-31"}, "amount": {"$decimal": "0.10"}}
    api.post("instances", {"type": "tests.echo", "inputs": inputs})
    value = latest().inputs.value
    assert (value["day"].isoformat(), str(value["amount"])) == ("2030-01-31", "0.10")
    assert api.get(f"instances/{latest().uuid}/inputs").json()["value"] == inputs


@pytest.mark.slow
def test_post_enqueues_many_instances_with_few_queries(world, api, django_assert_max_num_queries):
    items = [{"type": "tests.add", "inputs": [1]}, {"type": "tests.echo", "identifier": "a"}]
    answer = api.post("instances", items)
    assert (answer.status_code, "Location" in answer.headers) == (201, False)
    made = answer.json()
    found = [(each["type"], each["identifier"]) for each in made]
    assert found == [("tests.add", None), ("tests.echo", "a")]
    rows = Instance.objects.in_bulk([each["uuid"] for each in made], field_name="uuid")
    assert {row.log.get().who for row in rows.values()} == {WHO}
    with django_assert_max_num_queries(60):
        answer = api.post("instances", [{"type": "tests.echo"}] * MAX_ITEMS)
    assert answer.status_code == 201
    assert Instance.objects.count() == MAX_ITEMS + 2


def test_post_returns_200_when_the_identifier_already_exists(full, api):
    """A request that enqueues nothing returns 200; the log names who redrove it (G6)."""
    body = {"type": "tests.echo", "identifier": MARKUP, "existing": "return"}
    answer = api.post("instances", body)
    assert (answer.status_code, answer.json()["uuid"]) == (200, str(full[State.FAILED].uuid))
    assert answer.headers["Location"] == answer.json()["url"]
    assert api.post("instances", [body, body]).status_code == 200
    assert api.post("instances", [body, {"type": "tests.echo"}]).status_code == 201
    answer = api.post("instances", body | {"existing": "redrive"})
    assert (answer.status_code, answer.json()["state"]) == (200, "ACCEPTED")
    assert full[State.FAILED].log.last().who == WHO


def test_post_returns_409_for_a_duplicate_identifier(full, api):
    before = full.world.snapshot()
    taken = {"type": "tests.echo", "identifier": MARKUP}
    answer = api.post("instances", taken)
    assert refusal(answer) == (409, "duplicate-identifier")
    assert fields(answer) == ["identifier"]
    assert str(full[State.FAILED].uuid) in answer.json()["detail"]
    other = {"type": "tests.add", "inputs": [1], "identifier": MARKUP}
    answer = api.post("instances", [other, {"type": "tests.echo"}, taken])
    assert (answer.status_code, fields(answer)) == (409, ["[2].identifier"])
    answer = api.post("instances", [{**taken, "identifier": "b"}] * 2)
    assert (answer.status_code, fields(answer)) == (409, ["[1].identifier"])
    assert full.world.snapshot() == before


def echoing(**more):
    return {"type": "tests.echo", **more}


# What options refuse is shown by tests/test_bad_input.py, and inputs by tests/test_codec.py.
BAD = [
    ({}, ["type"], "is required"),
    ("text", [], "JSON object"),
    ([], [], "1 to 1000 items, not 0"),
    ([echoing()] * (MAX_ITEMS + 1), [], "not 1001"),
    ([echoing(), 3, []], ["[1]", "[2]"], "JSON object"),
    ({"typ": "tests.echo"}, ["typ", "type"], "Did you mean 'type'"),
    ({"type": "tests.ecko"}, ["type"], "Did you mean 'tests.echo'"),
    ({"type": "tests.elsewhere"}, ["type"], "no handler"),
    # Else the permission to enqueue would allow bulk operations and webhooks.
    *(
        ({"type": f"atp.{name}"}, ["type"], "belongs to ATP")
        for name in ("redrive", "cancel", "delete", "webhook")
    ),
    ({"type": "\ud800"}, ["type"], "declared"),
    (echoing(**{"\ud800": 3}), ["\ud800"], "There is no field"),
    (echoing(created_by="root"), ["created_by"], "There is no field"),
    (echoing(priority=True), ["priority"], "whole number"),
    (echoing(collection="a\0b"), ["collection"], "printable"),
    (echoing(identifier="a", existing="retrun"), ["existing"], "Did you mean 'return'"),
    (echoing(existing="return"), ["existing"], "Give an identifier"),
    (echoing(run_after="2030-01-31T18:00:00"), ["run_after"], "not a time with an offset"),
    (echoing(run_after=20, start_before=10), ["start_before"], "later than"),
    (echoing(inputs=3), ["inputs"], "JSON object"),
    (echoing(inputs={"*": 1}), ["inputs"], "array"),
    (echoing(inputs=[1]), ["inputs"], "do not fit"),
    (echoing(inputs={"a": {"$date": "x"}}), ["inputs"], "Not the JSON"),
    (echoing(inputs={"a": "x" * 1_100_000}), ["inputs"], "limit is"),
    ({"type": "tests.keyword"}, ["inputs.path"], "missing"),
    ([echoing(), {"type": "tests.keyword"}], ["[1].inputs.path"], "[1].inputs.path: "),
    ({"type": "tests.add", "inputs": {"frist": 1}}, ["inputs.frist", "inputs.first"], ""),
    ([echoing(a=1), echoing(b=2)], ["[0].a", "[1].b"], "no field 'b'"),
]


@pytest.mark.slow
def test_an_invalid_body_returns_422_and_nothing_is_written(full, elsewhere, api):
    """The problem names each invalid field and says what is wrong (G13, G14)."""
    before = full.world.snapshot()
    for body, named, told in BAD:
        answer = api.post("instances", body)
        assert (answer.status_code, fields(answer)) == (422, named), str(body)[:100]
        assert told in answer.json()["detail"], str(body)[:100]
        assert full.world.snapshot() == before, str(body)[:100]


def test_the_number_of_reported_errors_is_limited(full, api, monkeypatch):
    """Suggestions for misspelt names are limited too, because comparing names takes time."""
    hinted = []
    monkeypatch.setattr(schema, "did_you_mean", lambda *given: hinted.append(given) or "")
    assert len(fields(api.post("instances", [{"type": "nothing"}] * 500))) == schema.MOST
    answer = api.post("instances", {f"typ{number}": 1 for number in range(500)})
    assert (answer.status_code, len(fields(answer))) == (422, schema.MOST)
    assert len(hinted) <= schema.MOST


def test_the_body_size_limit_follows_the_setting_of_the_project(world, api):
    body = echoing(inputs={"a": "x" * 200})
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=100):
        assert refusal(api.post("instances", body)) == (413, "request-too-large")
    assert not Instance.objects.exists()
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=None):
        assert api.post("instances", body).status_code == 201


@pytest.mark.slow
def test_deeply_nested_options_and_inputs_are_rejected_without_a_server_error(world, api):
    for depth in (990, 480, 300, MAX_DEPTH - 1):
        inputs = b'{"a": ' * depth + b"1" + b"}" * depth
        answer = api.call("POST", "instances", b'{"type": "tests.echo", "inputs": %s}' % inputs)
        assert answer.status_code in ((201,) if depth < MAX_DEPTH else (400, 422)), depth
    assert Instance.objects.count() == 1
    for number, depth in enumerate(range(850, 960, 4)):
        field = ("priority", "collection", "run_after")[number % 3]
        body = f'{{"type": "tests.echo", "{field}": {"[" * depth}1{"]" * depth}}}'
        assert api.call("POST", "instances", body.encode()).status_code in (400, 422)
