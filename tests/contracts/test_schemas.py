"""The schema of each kind of annotation, and the values that fit."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, WithJsonSchema

from atp import contracts, queue
from atp.contracts.contract import parameter_texts
from atp.exceptions import TooLarge
from atp.operations.registry import registry
from atp.payload import json as tagged_json

from ..helpers import run_python
from . import tasks

KEY = UUID("12345678-1234-5678-1234-567812345678")
LINE = {"sku": "a", "count": 2}
ORDER = {"number": 2, "placed": "2026-01-31", "total": "1.50", "lines": [LINE]}
TREE = {"name": "root", "children": [{"name": "leaf"}]}

FIT = [
    ("count", 3),
    ("ratio", 1),
    ("ratio", float("inf")),
    ("note", None),
    ("colour", "blue"),
    ("point", {"x": 1}),
    ("order", ORDER),
    ("order", ORDER | {"placed": date(2026, 1, 31), "total": Decimal("1.50")}),
    ("tree", TREE),
    ("day", date(2026, 1, 31)),
    ("at", datetime(2026, 1, 31, 18, tzinfo=UTC)),
    ("clock", time(18, 30)),
    ("lasting", timedelta(hours=1)),
    ("key", KEY),
    ("price", Decimal("0.1")),
    ("data", b"\x00"),
    ("pair", [1, "a"]),
    ("pair", (1, "a")),
    ("unique", [1, 2]),
    ("counts", {"a": 1}),
    ("limit", 1),
    ("anything", {"deep": [1, None, KEY]}),
]
MISFIT = [
    ("count", "3", ["count"]),
    ("count", True, ["count"]),
    ("colour", "green", ["colour"]),
    ("point", {"x": "1", "y": []}, ["point.x", "point.y"]),
    ("order", {"number": 2}, ["order.placed", "order.total"]),
    ("order", ORDER | {"lines": [LINE, {}]}, ["order.lines[1].count", "order.lines[1].sku"]),
    ("order", ORDER | {"number": 3}, ["order.number"]),
    ("order", ORDER | {"placed": "someday"}, ["order.placed"]),
    (
        "tree",
        TREE | {"children": [TREE | {"children": [TREE, {}]}]},
        ["tree.children[0].children[1].name"],
    ),
    ("day", "2026-01-31", ["day"]),
    ("at", "2026-01-31T18:00:00+00:00", ["at"]),
    ("lasting", 3600, ["lasting"]),
    ("price", Decimal(-1), ["price"]),
    ("data", "AA==", ["data"]),
    ("percent", 101, ["percent"]),
    ("tags", ["a", 1, 2], ["tags[1]", "tags[2]"]),
    ("pair", [1], ["pair"]),
    ("unique", [1, 1], ["unique"]),
    ("counts", {"a": 1, "b": "x"}, ["counts.b"]),
    ("limit", "x", ["limit"]),
]


class Left(BaseModel):
    child: "Left | Right | None" = None


class Right(BaseModel):
    child: "Left | Right | None" = None
    count: int = 0


@pytest.fixture
def checked(check):
    """Return a function that checks a value against a handler with this annotation."""

    def declare(annotation):
        made = check.declared({"value": annotation})
        return lambda value: contracts.check(made, {"value": value})

    return declare


def paths(task_type, inputs):
    return sorted(path for path, _ in contracts.check(task_type, inputs))


def test_each_annotation_accepts_values_that_fit():
    """The values are also valid for an independent JSON Schema validator."""
    schema = contracts.schema_of(tasks.contract).inputs
    Draft202012Validator.check_schema(schema)
    for name, value in FIT:
        inputs = {"count": 1, name: value}
        assert contracts.check(tasks.contract, inputs) == [], name
        stored = json.loads(tagged_json.to_json(inputs))
        assert Draft202012Validator(schema).is_valid(stored), name


def test_values_that_do_not_fit_are_reported_by_path():
    for name, value, expected in MISFIT:
        assert paths(tasks.contract, {"count": 1, name: value}) == expected


def test_all_problems_are_reported_together(world):
    """``enqueue()`` in Python compares only names; the API, the pages and the shell values."""
    instance = tasks.contract.enqueue(count="three", day="2026-01-31")
    assert queue.inputs(instance).value == {"count": "three", "day": "2026-01-31"}
    found = contracts.check(tasks.contract, {"cuont": 1, "dya": 2, "ratio": "x", "tags": [1]})
    assert [path for path, _ in found] == ["cuont", "dya", "count", "ratio", "tags[0]"]
    assert "Did you mean 'day'?" in found[1].text
    [problem] = contracts.check(tasks.contract, {"count": 1, "day": "2026-01-31"})
    assert problem.text == (
        '"2026-01-31" is not a date or null. Write it as {"$date": …}, because text stays text.'
    )
    # But no more than twenty.
    assert len(contracts.check(tasks.contract, {"count": 1, "tags": [1] * 1000})) == 20


def test_positional_arguments_are_reported_by_parameter_name():
    schema = Draft202012Validator(contracts.schema_of(tasks.positional).inputs)
    for inputs, expected in (
        ([1, "a"], []),
        ([1, "a", 0.5, 2], []),
        ({"*": [1], "second": "a", "last": 3, "more_of_it": True}, []),
        (["1", 2, "x", 3, "y"], ["first", "more[0]", "more[2]", "second"]),
        ({"*": [1], "second": "a", "wet": 3}, ["wet"]),
        ({"second": 5}, ["first", "second"]),
    ):
        assert paths(tasks.positional, inputs) == expected
        assert isinstance(inputs, list) or schema.is_valid(inputs) == (expected == [])


def test_annotations_without_a_schema_accept_any_json(check, settings):
    contract = contracts.schema_of(tasks.opaque)
    assert contract.inputs["properties"]["thing"] == {"default": None}
    assert set(contract.hints) == {"thing", "lost", "return"}
    assert "Unimportable" in contract.hints["lost"]
    assert contracts.check(tasks.opaque, {"thing": [1], "lost": "x"}) == []
    assert paths(tasks.opaque, {"plain": "x"}) == ["plain"]
    outputs = contracts.schema_of(tasks.contract).outputs
    assert outputs["additionalProperties"] == {"type": "integer"}
    # A Type that stores pickles has no contract.
    settings.ATP = {**settings.ATP, "ALLOW_PICKLE": True}
    pickled = replace(check.declared({"count": int}), serializer="pickle")
    assert contracts.schema_of(pickled) is None
    assert contracts.check(pickled, {"count": "x"}) == []


STYLES = {
    "sphinx": """Do.

        :param int zoom: how near,
            at most
        :param tint: the colour
        :return: nothing""",
    "google": """Do.

        Args:
            zoom (int): how near,
                at most
            tint: the colour

        Returns:
            nothing: at all""",
    "numpy": """Do.

        Parameters
        ----------
        zoom : int
            how near,
            at most
        tint
            the colour

        Returns
        -------
        int
            nothing""",
}


def test_docstrings_of_each_style_describe_parameters():
    def handler(context, zoom, tint):
        pass

    for style in STYLES.values():
        handler.__doc__ = style
        assert parameter_texts(handler) == {"zoom": "how near, at most", "tint": "the colour"}
    contract = contracts.schema_of(tasks.contract)
    described = contracts.described(contract, tasks.contract.signature)
    named = {each.name: each for each in described}
    assert named["count"].description == "how many there are, in all"
    assert named["ratio"].description == "of one to the other"
    assert (named["count"].is_required, named["percent"].default) == (True, "50")
    assert named["tags"].type == "array of text"


_SHOW = """
import json, django
django.setup()
from atp import contracts
from tests.contracts import tasks
for each in (tasks.contract, tasks.positional, tasks.opaque):
    print(json.dumps(contracts.schema_of(each).inputs))
"""


def test_the_schema_is_identical_in_each_process():
    types = tasks.contract, tasks.positional, tasks.opaque
    mine = "".join(f"{json.dumps(contracts.schema_of(each).inputs)}\n" for each in types)
    assert run_python(_SHOW, PYTHONHASHSEED="1") == mine


def test_atp_works_without_the_contract_packages():
    run_python("""
import sys
for name in ("pydantic", "jsonschema"):
    sys.modules[name] = None  # cannot be imported
import pkgutil, importlib, django
django.setup()
import atp
for found in pkgutil.walk_packages(atp.__path__, "atp."):
    if found.name == "atp.contracts.schema":
        continue
    if found.name.startswith(("atp.migrations", "atp.testing.plugin", "atp.checks")):
        continue
    if found.name.startswith(("atp.contrib.eoxserver.", "atp.contrib.pygeoapi.")):
        continue
    importlib.import_module(found.name)
from atp import contracts
from tests.app import tasks
assert not contracts.is_available()
assert contracts.schema_of(tasks.add) is None
assert contracts.check(tasks.add, {"first": "x"}) == []
""")


@pytest.mark.timeout(60)
def test_patterns_are_matched_in_linear_time(checked):
    """Python's regular expressions would take years for the text that does not match (G13)."""
    for annotation in (
        Annotated[str, Field(pattern="^(a+)+$")],
        dict[Annotated[str, Field(pattern="^(a+)+$")], int],
        Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(a+)+$"})],
        Annotated[dict, WithJsonSchema({"propertyNames": {"pattern": "^(a+)+$"}})],
        Annotated[dict, WithJsonSchema({"patternProperties": {"^(a+)+$": False}})],
    ):
        check = checked(annotation)
        for text in ("a" * 60 + "!", "a" * 60):
            found = check(text) if check("a") == [] else check({text: 1})
            is_denied = "patternProperties" in str(annotation)
            assert bool(found) == ((text[-1] == "!") != is_denied), annotation
    # One that only pydantic knows is checked by pydantic.
    check = checked(Annotated[str, Field(pattern=r"^\p{L}+$")])
    assert check("Ümit") == []
    [(path, text)] = check("1")
    assert (path, "pattern" in text) == ("value", True)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_checks_of_unique_items_and_enums_compare_values_as_json_does(checked):
    """1 equals 1.0 but not true; unique items are compared in linear time."""
    check = checked(set[int | str])
    items = [each for n in range(20_000) for each in (n, str(n))]
    assert check(items) == []
    assert [each.path for each in check([*items, 7])] == ["value"]
    check = checked(Annotated[list, WithJsonSchema({"type": "array", "uniqueItems": True})])
    for items in ([1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[0], [0.0]], [None, None]):
        assert check(items), items
    assert check([1, True, "1", 0, False, None, "null", [1], {"1": 1}]) == []
    check = checked(Annotated[object, WithJsonSchema({"enum": [1, "a", [2], None]})])
    assert [bool(check(each)) for each in (1, 1.0, "a", [2.0], None)] == [False] * 5
    assert [bool(check(each)) for each in (True, "b", [3], {}, 0)] == [True] * 5
    # A multiple is what pydantic says.
    check = checked(Annotated[float, Field(multiple_of=0.01)])
    assert check(0.07) == check(7) == []
    assert check(0.075)
    check(10**400)  # no float can be it
    assert checked(Annotated[int, Field(multiple_of=3)])(10**30)


@pytest.mark.timeout(60)
def test_the_message_of_a_problem_shortens_a_large_value(checked, settings):
    """Recursive alternatives are checked only once."""
    for annotation in (int, Annotated[str, Field(max_length=3)], dict[str, int]):
        value = {"x" * 10_000: "y" * 10_000} if annotation == dict[str, int] else "x" * 10_000
        [problem] = checked(annotation)(value)
        assert len(problem.path) + len(problem.text) < 1000
    # G13: the size is checked before the contract.
    checked(int)
    settings.ATP = settings.ATP | {"MAX_INPUTS_SIZE": 1000}
    with pytest.raises(TooLarge):
        contracts.require(registry.get("tests.contract_annotated"), (), {"value": "x" * 2000})
    value = {"child": "x"}
    for _ in range(40):
        value = {"child": value}
    assert checked(Left)(value)
