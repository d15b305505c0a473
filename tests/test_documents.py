"""Rows as documents."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from atp.models import Inputs, Instance, Type
from atp.payload import codec
from atp.reports import documents
from atp.states import State

from .populated import populate


def test_times_and_durations_are_plain():
    document = {
        "time": datetime(2030, 1, 31, tzinfo=UTC),
        "backoff": timedelta(seconds=1.5),
        "uuid": UUID(int=7),
    }
    assert json.loads(json.dumps(document, default=documents.plain)) == {
        "time": "2030-01-31T00:00:00+00:00",
        "backoff": 1.5,
        "uuid": "00000000-0000-0000-0000-000000000007",
    }
    with pytest.raises(TypeError):
        documents.plain(object())


def test_all_types(world):
    Type.objects.filter(identifier="tests.add").delete()
    types = {document["identifier"]: document for document in documents.types()}
    assert list(types) == sorted(types)
    assert types["tests.add"]["registered"] is None
    assert types["tests.echo"]["registered"] is not None


def test_a_task_of_the_queue(world):
    full = populate(world)
    found = documents.queued_task(full[State.RUNNING].task)
    assert found["instance"] == full[State.RUNNING].uuid
    assert (found["type"], found["daemon"]) == ("tests.echo", "host:1")


def of_inputs(text):
    """Return the Inputs of an Instance, as they are stored."""
    instance = Instance(type=Type(identifier="tests.echo"))
    return Inputs(instance=instance, format=codec.JSON, data=text)


@pytest.mark.parametrize("text", ["{", "NaN", "[Infinity]", "1e999", "[" * 100_000])
def test_what_is_no_json_has_no_value(text):
    assert documents.inputs(of_inputs(text))["value"] is None


def test_what_is_json_has_its_value():
    row = of_inputs('{"a": [1, 2.5, -1e3]}')
    assert documents.inputs(row)["value"] == {"a": [1, 2.5, -1000.0]}
