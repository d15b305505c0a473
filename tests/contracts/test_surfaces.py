"""The API, the pages and the shell reject the same inputs with the same paths (G13)."""

import json
import re
import sys
from datetime import date
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError

from atp import checks, contracts, queue
from atp.contracts import contract as making
from atp.models import Instance, LogRecord, Schedule, Type
from atp.store import get_store

from ..api.client import Api
from ..helpers import shell
from . import tasks

NAME = "tests.contract"
ADDRESS = f"/atp/types/{NAME}"
BAD = [
    ({"count": 1, "line": {"sku": 1}, "tags": ["a", 2]}, ["line.count", "line.sku", "tags[1]"]),
    ({"cuont": 1, "mode": "medium"}, ["count", "cuont", "mode"]),
]
GOOD = {"count": 1, "day": {"$date": "2026-01-31"}, "order": None}


@pytest.fixture
def world(world):
    get_store().types.register([tasks.contract.registration()])
    return world


@pytest.fixture
def root(db):
    return User.objects.create_superuser("root of contracts", password="secret")


def by_api(client, root, inputs):
    answer = Api(root).post("instances", {"type": NAME, "inputs": inputs})
    if answer.status_code == 201:
        return None
    assert answer.status_code == 422, answer.json()
    return [error["field"].removeprefix("inputs.") for error in answer.json()["errors"]]


def by_page(client, root, inputs):
    client.force_login(root)
    answer = client.post(f"{ADDRESS}/enqueue/", {"inputs": json.dumps(inputs)})
    if answer.status_code == 302:
        return None
    assert answer.status_code == 422
    # Beside the field, an error each.
    form = answer.context["form"]
    assert set(form.errors) == {"inputs"}
    for text in form.errors["inputs"]:
        assert text in unescape(answer.content.decode())
    return [text.partition(":")[0] for text in form.errors["inputs"]]


def by_shell(client, root, inputs):
    try:
        shell("enqueue", NAME, json.dumps(inputs))
    except CommandError as error:
        told = f" {error}".replace(f"{NAME}{tasks.contract.signature}", NAME)
        paths = {path for _, expected in BAD for path in expected}
        return [path for path in paths if f" {path}: " in told or f"argument {path!r}" in told]
    return None


def rows():
    return Instance.objects.count(), LogRecord.objects.count()


@pytest.mark.parametrize("enqueue", [by_api, by_page, by_shell])
def test_each_interface_refuses_bad_inputs_and_stores_good_ones_like_enqueue(
    world, client, root, enqueue
):
    """A rejected request writes nothing (G13)."""
    before = rows()
    for inputs, expected in BAD:
        assert sorted(enqueue(client, root, inputs)) == expected
    assert rows() == before
    # What is stored is what Python stores.
    assert enqueue(client, root, GOOD) is None
    stored = queue.inputs(Instance.objects.latest("pk"))
    said = tasks.contract.enqueue(count=1, day=date(2026, 1, 31), order=None)
    assert stored.data == queue.inputs(said).data


def test_inputs_of_a_batch_or_a_schedule_are_checked_against_the_contract(world, root):
    """A rejected request writes nothing (G13). Each path begins with the index of the item."""
    get_store().types.register([tasks.with_slot.registration()])
    api, before = Api(root), rows()
    items = [{"type": NAME, "inputs": inputs} for inputs in ({"count": "x"}, GOOD, {"count": 1.5})]
    answer = api.post("instances", items)
    assert answer.status_code == 422
    fields = [error["field"] for error in answer.json()["errors"]]
    assert fields == ["[0].inputs.count", "[2].inputs.count"]
    assert answer.json()["type"] == "urn:atp:problem:invalid-inputs"
    assert rows() == before
    body = {"identifier": "s", "type": "tests.contract_slot", "every": 3600}
    answer = api.post("schedules", body | {"inputs": {"count": "x"}})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["inputs.count"]
    assert not Schedule.objects.filter(identifier="s").exists()
    assert api.post("schedules", body | {"inputs": {"count": 1}}).status_code == 201
    with pytest.raises(CommandError, match='count: "x" is not an integer'):
        shell("schedule", "change", "s", "--inputs", '{"count": "x"}')
    assert json.loads(Schedule.objects.get(identifier="s").data) == {"count": 1}


@pytest.mark.slow
def test_each_interface_shows_the_contract_unless_another_process_declares_it(world, client, root):
    found = Api(root).get(f"types/{NAME}").json()
    contract = contracts.schema_of(tasks.contract)
    assert (found["inputs_schema"], found["outputs_schema"]) == (contract.inputs, contract.outputs)
    listed = Api(root).get("types").json()["results"]
    assert all("inputs_schema" not in each for each in listed)
    client.force_login(root)
    for path in (f"{ADDRESS}/", f"{ADDRESS}/enqueue/"):
        text = unescape(client.get(path).content.decode())
        [row] = re.findall(r"<tr>\s*<td[^>]*><code>count</code>.*?</tr>", text, re.DOTALL)
        for told in ("integer", "required", "how many there are, in all"):
            assert told in row
    shown = shell("type", NAME)
    assert re.search(r"count +integer +required +how many there are, in all", shown)
    assert re.search(r'mode +"fast" or "slow" +"fast"', shown)
    assert "It returns object of integer." in shown
    row = Type.objects.get(identifier=NAME)
    row.pk, row.identifier = None, "tests.elsewhere"
    row.save()
    found = Api(root).get("types/tests.elsewhere").json()
    assert (found["inputs_schema"], found["outputs_schema"]) == (None, None)
    page = client.get("/atp/types/tests.elsewhere/")
    assert page.status_code == 200
    assert "<h2>Inputs</h2>" not in page.content.decode()
    told = "This process has no handler for it, so its inputs are unknown."
    assert told in shell("type", "tests.elsewhere")


@pytest.fixture(params=["pydantic", "jsonschema"])
def without(request, monkeypatch):
    """Make one of the packages impossible to import."""
    monkeypatch.setitem(sys.modules, request.param, None)
    making.is_available.cache_clear()
    yield
    making.is_available.cache_clear()


def test_values_are_not_checked_without_the_contract_packages(world, client, root, without):
    inputs = {"count": "3", "day": "2026-01-31"}
    for enqueue in (by_api, by_page, by_shell):
        assert enqueue(client, root, inputs) is None
        assert queue.inputs(Instance.objects.latest("pk")).value == inputs
    # And there is no contract to show.
    assert Api(root).get(f"types/{NAME}").json()["inputs_schema"] is None
    assert "<h2>Inputs</h2>" not in client.get(f"{ADDRESS}/").content.decode()
    assert "ATP's extra [contracts]" in shell("type", NAME)
    assert checks.check_contracts(None) == []


def test_a_system_check_lists_annotations_without_a_schema():
    found = [each for each in checks.check_contracts(None) if "tests.contract_opaque" in each.msg]
    assert len(found) == 3
    assert {(each.id, each.is_serious()) for each in found} == {("atp.I015", False)}
