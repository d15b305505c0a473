"""The schema of each kind of annotation, and what fits it."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, WithJsonSchema

from atp import contracts, queue, task_type
from atp.contracts.described import texts_of
from atp.exceptions import TooLarge
from atp.payload import tagged_json
from atp.verbs.registry import registry

from ..helpers import child_environment
from . import tasks

KEY = UUID("12345678-1234-5678-1234-567812345678")
LINE = {"sku": "a", "count": 2}
ORDER = {"number": 2, "placed": "2026-01-31", "total": "1.50", "lines": [LINE]}
TREE = {"name": "root", "children": [{"name": "leaf"}]}

FIT = [
    ("count", 3),
    ("ratio", 1),
    ("ratio", 0.5),
    ("ratio", float("inf")),
    ("is_wet", True),
    ("name", None),
    ("name", "Ada"),
    ("note", None),
    ("mode", "slow"),
    ("colour", "blue"),
    ("point", {"x": 1}),
    ("line", LINE),
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
    ("where", "/tmp/a"),
    ("percent", 100),
    ("tags", ["a", "b"]),
    ("tags", ()),
    ("pair", [1, "a"]),
    ("pair", (1, "a")),
    ("unique", [1, 2]),
    ("counts", {"a": 1}),
    ("limit", None),
    ("limit", 1),
    ("anything", {"deep": [1, None, KEY]}),
]
MISFIT = [
    ("count", "3", ["count"]),
    ("count", None, ["count"]),
    ("count", True, ["count"]),
    ("ratio", "1", ["ratio"]),
    ("is_wet", 1, ["is_wet"]),
    ("name", 5, ["name"]),
    ("note", [], ["note"]),
    ("mode", "medium", ["mode"]),
    ("colour", "green", ["colour"]),
    ("point", {"x": "1", "y": []}, ["point.x", "point.y"]),
    ("line", {"sku": 1}, ["line.count", "line.sku"]),
    ("order", {"number": 2}, ["order.placed", "order.total"]),
    ("order", ORDER | {"lines": [LINE, {}]}, ["order.lines[1].count", "order.lines[1].sku"]),
    ("order", ORDER | {"number": 3}, ["order.number"]),
    ("order", ORDER | {"placed": "someday"}, ["order.placed"]),
    ("tree", TREE | {"children": [{}]}, ["tree.children[0].name"]),
    (
        "tree",
        TREE | {"children": [TREE | {"children": [TREE, {}]}]},
        ["tree.children[0].children[1].name"],
    ),
    ("day", "2026-01-31", ["day"]),
    ("day", Decimal(1), ["day"]),
    ("at", "2026-01-31T18:00:00+00:00", ["at"]),
    ("clock", "18:30", ["clock"]),
    ("lasting", 3600, ["lasting"]),
    ("key", str(KEY), ["key"]),
    ("price", 1, ["price"]),
    ("price", Decimal(-1), ["price"]),
    ("data", "AA==", ["data"]),
    ("where", 1, ["where"]),
    ("percent", 101, ["percent"]),
    ("tags", ["a", 1, 2], ["tags[1]", "tags[2]"]),
    ("pair", [1], ["pair"]),
    ("unique", [1, 1], ["unique"]),
    ("counts", {"a": 1, "b": "x"}, ["counts.b"]),
    ("limit", "x", ["limit"]),
]


@pytest.fixture
def declared():
    """Return a function that declares a handler for this test."""

    def declare(handler):
        registry.remove("tests.contract_once")
        return task_type("tests.contract_once")(handler)

    yield declare
    registry.remove("tests.contract_once")


def paths(task_type, inputs):
    return sorted(path for path, _ in contracts.check(task_type, inputs))


@pytest.mark.parametrize(("name", "value"), FIT)
def test_a_value_fits_its_annotation(name, value):
    assert contracts.check(tasks.contract, {"count": 1, name: value}) == []


@pytest.mark.parametrize(("name", "value", "expected"), MISFIT)
def test_a_value_that_does_not_fit_is_told_by_its_paths(name, value, expected):
    assert paths(tasks.contract, {"count": 1, name: value}) == expected


@pytest.mark.parametrize(("name", "value"), FIT)
def test_what_fits_is_valid_for_any_validator_that_is_given_the_schema(name, value):
    stored = json.loads(tagged_json.to_json({"count": 1, name: value}))
    schema = contracts.schema_of(tasks.contract).inputs
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(stored)


def test_a_pattern_that_only_pydantic_knows_is_checked_by_pydantic(declared):
    def handler(context, *, name: Annotated[str, Field(pattern=r"^\p{L}+$")] = "Ärger"):
        """Take letters."""

    made = declared(handler)
    assert contracts.check(made, {"name": "Ümit"}) == []
    [(path, text)] = contracts.check(made, {"name": "1"})
    assert (path, "pattern" in text) == ("name", True)
    assert "name" in contracts.schema_of(made).inputs["properties"]


def test_a_number_that_no_float_can_be(declared):
    def handler(context, *, step: Annotated[float, Field(multiple_of=0.5)]):
        """Take half steps."""

    assert paths(declared(handler), {"step": 0.3}) == ["step"]
    contracts.check(declared(handler), {"step": 10**400})


def test_all_problems_are_told_at_once():
    found = contracts.check(tasks.contract, {"cuont": 1, "dya": 2, "ratio": "x", "tags": [1]})
    assert [path for path, _ in found] == ["cuont", "dya", "count", "ratio", "tags[0]"]
    assert "Did you mean 'day'?" in found[1].text


def test_no_more_than_twenty_problems_are_told():
    assert len(contracts.check(tasks.contract, {"count": 1, "tags": [1] * 1000})) == 20


def test_a_date_as_text_is_refused_with_the_way_to_write_it():
    [problem] = contracts.check(tasks.contract, {"count": 1, "day": "2026-01-31"})
    assert problem.text == (
        '"2026-01-31" is not a date or null. It is written {"$date": …}: text would stay text.'
    )


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([1, "a"], []),
        ([1, "a", 0.5, 2], []),
        ({"*": [1], "second": "a", "last": 3, "more_of_it": True}, []),
        (["1", 2, "x", 3, "y"], ["first", "more[0]", "more[2]", "second"]),
        ({"*": [1], "second": "a", "wet": 3}, ["wet"]),
        ({"second": 5}, ["first", "second"]),
    ],
)
def test_arguments_by_position_are_told_by_the_names_of_parameters(inputs, expected):
    assert paths(tasks.positional, inputs) == expected


def test_the_schema_of_arguments_by_position():
    schema = contracts.schema_of(tasks.positional).inputs
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"*": [1, "a", 0.5], "last": 1, "other": True})
    assert not validator.is_valid({"second": "a"})
    assert not validator.is_valid({"*": ["1"], "second": "a"})


def test_what_has_no_schema_is_any_json_with_a_hint():
    contract = contracts.schema_of(tasks.opaque)
    assert contract.inputs["properties"]["thing"] == {"default": None}
    assert set(contract.hints) == {"thing", "lost", "return"}
    assert "Unimportable" in contract.hints["lost"]
    assert contracts.check(tasks.opaque, {"thing": [1], "lost": "x"}) == []
    assert paths(tasks.opaque, {"plain": "x"}) == ["plain"]


def test_outputs_have_a_schema():
    outputs = contracts.schema_of(tasks.contract).outputs
    assert outputs["additionalProperties"] == {"type": "integer"}


def test_a_type_that_stores_pickles_has_no_contract(settings):
    settings.ATP = {**settings.ATP, "ALLOW_PICKLE": True}

    @task_type("tests.contract_pickled", serializer="pickle")
    def pickled(context, *, count: int):
        pass

    try:
        assert contracts.schema_of(pickled) is None
        assert contracts.check(pickled, {"count": "x"}) == []
    finally:
        registry.remove("tests.contract_pickled")


def test_the_docstring_describes_parameters():
    named = {
        each.name: each
        for each in contracts.described(
            contracts.schema_of(tasks.contract), tasks.contract.signature
        )
    }
    assert named["count"].description == "how many there are, in all"
    assert named["ratio"].description == "of one to the other"
    assert (named["count"].is_required, named["percent"].default) == (True, "50")
    assert named["tags"].type == "array of text"


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


@pytest.mark.parametrize("style", STYLES)
def test_docstrings_of_each_style_are_read(style):
    def handler(context, zoom, tint):
        pass

    handler.__doc__ = STYLES[style]
    assert texts_of(handler) == {"zoom": "how near, at most", "tint": "the colour"}


_SHOW = """
import json, django
django.setup()
from atp import contracts
from tests.contracts import tasks
for each in (tasks.contract, tasks.positional, tasks.opaque):
    print(json.dumps(contracts.schema_of(each).inputs))
"""


def test_the_schema_is_the_same_text_in_each_process():
    texts = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", _SHOW],
            env={**child_environment(), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(run.stdout)
    assert len(texts) == 1
    mine = [contracts.schema_of(each).inputs for each in (tasks.contract, tasks.positional)]
    assert [json.loads(line) for line in texts.pop().splitlines()][:2] == mine


@pytest.mark.parametrize("module", ["pydantic", "jsonschema"])
def test_nothing_of_atp_needs_the_packages(module):
    source = f"""
import sys
sys.modules[{module!r}] = None  # cannot be imported
import pkgutil, importlib, django
django.setup()
import atp
for found in pkgutil.walk_packages(atp.__path__, "atp."):
    if found.name in ("atp.contracts.tagged_schema", "atp.contracts.problems"):
        continue
    if found.name.startswith(("atp.migrations", "atp.testing.plugin", "atp.checks")):
        continue
    importlib.import_module(found.name)
from atp import contracts
from tests.app import tasks
assert not contracts.is_available()
assert contracts.schema_of(tasks.add) is None
assert contracts.check(tasks.add, {{"first": "x"}}) == []
"""
    run = subprocess.run(
        [sys.executable, "-c", source],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_python_does_not_look_at_annotations(world):
    """``enqueue()`` compares names only: the contract is of the surfaces."""
    instance = tasks.contract.enqueue(count="three", day="2026-01-31")
    assert queue.inputs(instance).value == {"count": "three", "day": "2026-01-31"}


@pytest.fixture
def checked(monkeypatch):
    """Declare a Type whose handler takes one value of an annotation; return its check."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))

    def declare(annotation):
        def handler(context, *, value):
            """Take it."""

        handler.__annotations__ = {"value": annotation}
        made = task_type("tests.contract_made")(handler)
        return lambda value: contracts.check(made, {"value": value})

    return declare


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, Field(pattern="^(a+)+$")],
        dict[Annotated[str, Field(pattern="^(a+)+$")], int],
        Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(a+)+$"})],
        Annotated[dict, WithJsonSchema({"propertyNames": {"pattern": "^(a+)+$"}})],
        Annotated[dict, WithJsonSchema({"patternProperties": {"^(a+)+$": False}})],
    ],
    ids=["field", "keys", "schema", "names", "properties"],
)
@pytest.mark.timeout(60)
def test_a_pattern_takes_linear_time(checked, annotation):
    """G13: Python's engine would need years for the text that does not fit."""
    check = checked(annotation)
    for text in ("a" * 60 + "!", "a" * 60):
        found = check(text) if check("a") == [] else check({text: 1})
        is_denied = "patternProperties" in str(annotation)
        assert bool(found) == ((text[-1] == "!") != is_denied)


@pytest.mark.timeout(60)
def test_the_items_of_a_set_are_compared_in_linear_time(checked):
    check = checked(set[int | str])
    items = [each for n in range(20_000) for each in (n, str(n))]
    assert check(items) == []
    assert [each.path for each in check([*items, 7])] == ["value"]


def test_equal_items_are_those_of_json(checked):
    check = checked(Annotated[list, WithJsonSchema({"type": "array", "uniqueItems": True})])
    for items in ([1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[0], [0.0]], [None, None]):
        assert check(items), items
    assert check([1, True, "1", 0, False, None, "null", [1], {"1": 1}]) == []


def test_a_multiple_is_what_pydantic_says(checked):
    check = checked(Annotated[float, Field(multiple_of=0.01)])
    assert check(0.07) == []
    assert check(7) == []
    assert check(0.075)
    assert checked(Annotated[int, Field(multiple_of=3)])(10**30)


def test_an_enum_holds_one_for_equal_to_1_but_not_true(checked):
    check = checked(Annotated[object, WithJsonSchema({"enum": [1, "a", [2], None]})])
    assert [bool(check(each)) for each in (1, 1.0, "a", [2.0], None)] == [False] * 5
    assert [bool(check(each)) for each in (True, "b", [3], {}, 0)] == [True] * 5


def test_a_value_is_not_echoed_whole(checked):
    for annotation in (int, Annotated[str, Field(max_length=3)], dict[str, int]):
        value = {"x" * 10_000: "y" * 10_000} if annotation == dict[str, int] else "x" * 10_000
        [problem] = checked(annotation)(value)
        assert len(problem.path) + len(problem.text) < 1000


def test_the_size_is_checked_before_the_contract(checked, settings):
    """G13."""
    checked(int)
    settings.ATP = settings.ATP | {"MAX_INPUTS_SIZE": 1000}
    with pytest.raises(TooLarge):
        contracts.require(registry.get("tests.contract_made"), (), {"value": "x" * 2000})


class Left(BaseModel):
    child: "Left | Right | None" = None


class Right(BaseModel):
    child: "Left | Right | None" = None
    count: int = 0


@pytest.mark.timeout(60)
def test_alternatives_that_contain_each_other_are_judged_once(checked):
    check = checked(Left)
    value = {"child": "x"}
    for _ in range(40):
        value = {"child": value}
    assert check(value)
