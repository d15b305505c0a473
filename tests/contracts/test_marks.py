"""How values of special types are passed: as tagged values, and inside a model as text too.

A literal member of an Enum is passed as its value. These rules hold wherever the class is used.
"""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import UUID4, Base64Bytes, BaseModel, Field, RootModel, SecretBytes, create_model
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypedDict

from atp import contracts

from .tasks import Colour

KEY = UUID("9f1d1c0e-7b0a-4c5e-8f5e-0d6c9b0f7a11")
DAY = date(2030, 1, 31)
TEXT = "2030-01-31"


@dataclass
class Line:
    sku: str
    day: date
    lines: "list[Line]" = field(default_factory=list)


class Entry(TypedDict):
    sku: str
    day: date


class Pair(NamedTuple):
    sku: str
    day: date


Day = TypeAliasType("Day", date)
OptionalDay = TypeAliasType("OptionalDay", date | None)


class Keyed(BaseModel):
    key: UUID4 | None = None
    data: Base64Bytes | None = None


@dataclass
class Red:
    kind: Literal[Colour.RED]
    count: int = 0


@dataclass
class Blue:
    kind: Literal[Colour.BLUE]
    count: int = 0


class Painted(BaseModel):
    kind: Literal[Colour.RED]


@pydantic_dataclass
class PaintedData:
    kind: Literal[Colour.RED]


def test_pydantic_types_are_passed_as_tagged_values(check):
    for annotation, value, text in (
        (UUID4, KEY, str(KEY)),
        (UUID4 | None, KEY, str(KEY)),
        (Base64Bytes, b"YQ==", "YQ=="),
        (SecretBytes, b"a", "YQ=="),
        (Annotated[UUID4, Field(title="Key", description="of a customer")], KEY, str(KEY)),
    ):
        assert check({"it": annotation}, {"it": value}) == []
        assert check({"it": annotation}, {"it": text}) == ["it"]
        assert check({"it": list[annotation]}, {"it": [value, text]}) == ["it[1]"]
        assert check({"it": annotation}, {"it": 5}) == ["it"]
    # Pydantic still checks the version. The schema is that of the plain type.
    assert check({"it": UUID4}, {"it": UUID(int=0)}) == ["it"]
    told = Annotated[UUID4, Field(description="whose")]
    made = check.declared({"plain": UUID, "it": UUID4, "told": told})
    parameters = contracts.schema_of(made).parameters
    assert parameters["it"] == parameters["plain"]
    assert parameters["told"] == {**parameters["plain"], "description": "whose"}
    [problem] = contracts.check(made, {"plain": KEY, "it": str(KEY), "told": KEY})
    assert problem.text == (
        f'"{KEY}" is not a UUID. Write it as {{"$uuid": …}}, because text stays text.'
    )


def test_pydantic_types_inside_a_model_accept_text(check):
    for value, problems in (
        ({"key": KEY}, []),
        ({"key": str(KEY)}, []),
        ({"key": None}, []),
        ({"key": "x"}, ["it.key"]),
        ({"data": "YQ=="}, []),
        ({"data": b"YQ=="}, []),
    ):
        assert check({"it": Keyed}, {"it": value}) == problems
    [problem] = contracts.check(check.declared({"it": Keyed}), {"it": {"key": 5}})
    assert (problem.path, problem.text) == ("it.key", "5 is not text, UUID or null.")


def shared(kind):
    """Return a model with one field of this type and a model with two."""
    return (
        create_model("One", first=(kind, ...)),
        create_model("Two", first=(kind, ...), second=(kind, ...)),
    )


@pytest.mark.slow
def test_a_class_accepts_text_inside_a_model_but_not_outside_it(check):
    """The order of the declarations does not matter."""
    line, tagged_line = {"sku": "a", "day": TEXT}, {"sku": "a", "day": DAY}
    for kind, text, tagged, below in (
        (Line, line, tagged_line, ".day"),
        (Entry, line, tagged_line, ".day"),
        (Pair, ["a", TEXT], ["a", DAY], "[1]"),
        (Day, TEXT, DAY, ""),
        (OptionalDay, TEXT, DAY, ""),
        (list[Line], [line], [], "[0].day"),
    ):
        one, two = shared(kind)
        annotations = {"one": one, "two": two, "it": kind, "more": list[kind]}
        inputs = {
            "one": {"first": text},
            "two": {"first": text, "second": tagged},
            "it": tagged,
            "more": [tagged],
        }
        bad = inputs | {"it": text, "more": [tagged, text]}
        two.model_validate({"first": text, "second": text})
        for ordered in (annotations, dict(reversed(annotations.items()))):
            assert check(ordered, inputs) == []
            assert check(ordered, bad) == [f"it{below}", f"more[1]{below}"]
    # A class that refers to itself accepts text in a model throughout.
    one, _ = shared(Line)
    given = {"model": {"first": {**line, "lines": [line]}}, "it": {**tagged_line, "lines": [line]}}
    for annotations in ({"model": one, "it": Line}, {"it": Line, "model": one}):
        assert check(annotations, given) == ["it.lines[0].day"]


def test_a_root_model_is_treated_as_a_model(check):
    line = {"sku": "a", "day": TEXT}
    entries, one_line = RootModel[list[Entry]], RootModel[Line]
    annotations = {"all_of_them": entries, "one": one_line, "line": Line, "entry": Entry}
    inputs = {"all_of_them": [line], "one": line, "line": line, "entry": line}
    assert check(annotations, inputs) == ["line.day", "entry.day"]
    # Also inside of a dictionary that is none.
    one, _ = shared(Entry)

    class Holder(TypedDict):
        model: one
        day: date

    inner = {"first": {"sku": "a", "day": TEXT}}
    assert check({"it": Holder}, {"it": {"model": inner, "day": TEXT}}) == ["it.day"]


def test_dictionary_keys_are_text_and_can_be_schema_keywords(check):
    days = {"it": dict[date, int], "ids": dict[UUID4, int]}
    assert check(days, {"it": {TEXT: 1}, "ids": {str(KEY): 1}}) == []
    assert len(check(days, {"it": {"x": 1}, "ids": {}})) == 1

    class Odd(TypedDict):
        default: date
        properties: date
        enum: Decimal

    good = {"default": DAY, "properties": DAY, "enum": Decimal(1)}
    bad = {"default": TEXT, "properties": TEXT, "enum": "1"}
    assert check({"it": Odd}, {"it": good}) == []
    assert sorted(check({"it": Odd}, {"it": bad})) == ["it.default", "it.enum", "it.properties"]


def test_a_discriminator_refers_to_the_definitions_of_its_alternatives(check):
    """Otherwise the mapping would refer to definitions that do not exist."""

    class Spring(TypedDict):
        kind: Literal["spring"]
        day: date

    class Autumn(TypedDict):
        kind: Literal["autumn"]
        day: date

    either = Annotated[Spring | Autumn, Field(discriminator="kind")]
    one, _ = shared(either)
    made = check.declared({"model": one, "it": either})
    given = {"kind": "autumn", "day": TEXT}
    inputs = {"model": {"first": given}, "it": given}
    assert [path for path, _ in contracts.check(made, inputs)] == ["it"]
    schema = contracts.schema_of(made).inputs
    for held in (schema["$defs"]["One"]["properties"]["first"], schema["properties"]["it"]):
        targets = {f"#/$defs/{name}" for name in schema["$defs"]}
        mapped = {*held["discriminator"]["mapping"].values()}
        assert mapped == {each["$ref"] for each in held["oneOf"]}
        assert mapped <= targets


def test_literal_enum_members_are_passed_as_their_values(check):
    for annotation, good, bad in (
        (Literal[Colour.RED], "red", "blue"),
        (Literal[Colour.RED, "green", None], "red", "blue"),
        (Literal[Colour.RED, "green", None], "green", "blue"),
        (Literal[Colour.RED] | int, "red", "blue"),
        (dict[str, tuple[Literal[Colour.BLUE], int]], {"a": ["blue", 1]}, {"a": ["red", 1]}),
        (Red, {"kind": "red"}, {"kind": "blue"}),
        (Annotated[Red | Blue, Field(discriminator="kind")], {"kind": "blue"}, {"kind": "x"}),
    ):
        assert check({"it": annotation}, {"it": good}) == []
        assert len(check({"it": annotation}, {"it": bad})) == 1, annotation

    # Validators are asked, too.
    class Priced(TypedDict):
        kind: Literal[Colour.RED]
        price: Annotated[Decimal, Field(gt=0)]

    assert check({"it": Priced}, {"it": {"kind": "red", "price": Decimal(1)}}) == []
    assert check({"it": Priced}, {"it": {"kind": "red", "price": Decimal(-1)}}) == ["it.price"]
    # Models of pydantic have rules of their own: Painted.model_validate() refuses the value.
    value = {"kind": "red"}

    class Held(TypedDict):
        it: Painted

    for kind, given in ((Painted, value), (PaintedData, value), (Held, {"it": value})):
        [path] = check({"it": kind, "other": Literal[Colour.RED]}, {"it": given, "other": "red"})
        assert path.endswith("it.kind")
