"""A value is given as a tag, and in a model as text, too, wherever its class is used."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import UUID4, Base64Bytes, BaseModel, Field, RootModel, SecretBytes, create_model
from typing_extensions import TypeAliasType, TypedDict

from atp import contracts

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


class Counted(TypedDict):
    count: int


class Pair(NamedTuple):
    sku: str
    day: date


Day = TypeAliasType("Day", date)
OptionalDay = TypeAliasType("OptionalDay", date | None)


class Entries(RootModel[list[Entry]]):
    pass


class OneLine(RootModel[Line]):
    pass


class Keyed(BaseModel):
    key: UUID4 | None = None
    data: Base64Bytes | None = None


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (UUID4, KEY, str(KEY)),
        (UUID4 | None, KEY, str(KEY)),
        (Base64Bytes, b"YQ==", "YQ=="),
        (SecretBytes, b"a", "YQ=="),
        (Annotated[UUID4, Field(title="Key", description="of a customer")], KEY, str(KEY)),
    ],
)
def test_a_type_of_pydantic_is_given_as_a_tag(check, annotation, value, text):
    assert check({"it": annotation}, {"it": value}) == []
    assert check({"it": annotation}, {"it": text}) == ["it"]
    assert check({"it": list[annotation]}, {"it": [value, text]}) == ["it[1]"]
    assert check({"it": annotation}, {"it": 5}) == ["it"]


def test_the_schema_of_a_type_of_pydantic(check):
    made = check.declared(
        {"plain": UUID, "it": UUID4, "told": Annotated[UUID4, Field(description="whose")]}
    )
    parameters = contracts.schema_of(made).parameters
    assert parameters["it"] == parameters["plain"]
    assert parameters["told"] == {**parameters["plain"], "description": "whose"}
    [problem] = contracts.check(made, {"plain": KEY, "it": str(KEY), "told": KEY})
    assert problem.text == (
        f'"{KEY}" is not a UUID. It is written {{"$uuid": …}}: text would stay text.'
    )


def test_pydantic_still_checks_the_version_of_a_uuid(check):
    assert check({"it": UUID4}, {"it": UUID(int=0)}) == ["it"]


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"key": KEY}, []),
        ({"key": str(KEY)}, []),
        ({"key": None}, []),
        ({"key": "x"}, ["it.key"]),
        ({"key": 5}, ["it.key"]),
        ({"data": "YQ=="}, []),
        ({"data": b"YQ=="}, []),
    ],
)
def test_a_type_of_pydantic_in_a_model_may_be_text(check, value, problems):
    assert check({"it": Keyed}, {"it": value}) == problems


def test_the_words_of_a_field_that_may_be_null(check):
    made = check.declared({"it": Keyed})
    [problem] = contracts.check(made, {"it": {"key": 5}})
    assert problem.text == "5 is not text, UUID or null."


def shared(kind):
    """Return models with one field and with two fields of this type."""
    return (
        create_model("One", first=(kind, ...)),
        create_model("Two", first=(kind, ...), second=(kind, ...)),
    )


SHARED = [
    pytest.param(Line, {"sku": "a", "day": TEXT}, {"sku": "a", "day": DAY}, ".day", id="dataclass"),
    pytest.param(Entry, {"sku": "a", "day": TEXT}, {"sku": "a", "day": DAY}, ".day", id="dict"),
    pytest.param(Pair, ["a", TEXT], ["a", DAY], "[1]", id="tuple"),
    pytest.param(Day, TEXT, DAY, "", id="alias"),
    pytest.param(OptionalDay, TEXT, DAY, "", id="optional"),
    pytest.param(list[Line], [{"sku": "a", "day": TEXT}], [], "[0].day", id="list"),
]


@pytest.mark.parametrize(("kind", "text", "tagged", "below"), SHARED)
@pytest.mark.parametrize("order", ["model first", "model last"])
def test_a_class_shared_with_a_model_has_the_rules_of_each_use(
    check, kind, text, tagged, below, order
):
    one, two = shared(kind)
    annotations = {"one": one, "two": two, "it": kind, "more": list[kind]}
    if order == "model last":
        annotations = dict(reversed(annotations.items()))
    inputs = {
        "one": {"first": text},
        "two": {"first": text, "second": tagged},
        "it": tagged,
        "more": [tagged],
    }
    two.model_validate({"first": text, "second": text})
    assert check(annotations, inputs) == []
    assert check(annotations, inputs | {"it": text, "more": [tagged, text]}) == [
        f"it{below}",
        f"more[1]{below}",
    ]


def test_a_class_that_only_a_model_uses_twice(check):
    _, two = shared(Day)
    assert check({"it": two}, {"it": {"first": TEXT, "second": TEXT}}) == []


def test_a_class_that_refers_to_itself_is_in_a_model_with_all_of_its_parts(check):
    one, _ = shared(Line)
    below = {"sku": "a", "day": TEXT}
    text = {**below, "lines": [below]}
    given = {"model": {"first": text}, "it": {"sku": "a", "day": DAY, "lines": [below]}}
    for annotations in ({"model": one, "it": Line}, {"it": Line, "model": one}):
        assert check(annotations, given) == ["it.lines[0].day"]


def test_a_root_model_is_a_model(check):
    line = {"sku": "a", "day": TEXT}
    annotations = {"all_of_them": Entries, "one": OneLine, "line": Line, "entry": Entry}
    inputs = {"all_of_them": [line], "one": line, "line": line, "entry": line}
    assert check(annotations, inputs) == ["line.day", "entry.day"]


def test_a_model_inside_a_dataclass_takes_text(check):
    one, _ = shared(Entry)

    class Holder(TypedDict):
        model: one
        day: date

    inner = {"first": {"sku": "a", "day": TEXT}}
    assert check({"it": Holder}, {"it": {"model": inner, "day": TEXT}}) == ["it.day"]


def test_only_what_differs_has_two_definitions(check):
    one, _ = shared(Counted)
    other, _ = shared(Entry)
    made = check.declared({"a": one, "b": Counted, "c": other, "d": Entry, "e": list[Entry]})
    names = [*contracts.schema_of(made).inputs["$defs"]]
    assert [name for name in names if name.startswith(("Counted", "Entry"))] == [
        "Counted",
        "Entry",
        "Entry-in-model",
    ]
    told = {
        each.name: each.type
        for each in contracts.described(contracts.schema_of(made), made.signature)
    }
    assert told["e"] == "array of Entry"


def test_keys_are_text(check):
    days = {"it": dict[date, int], "ids": dict[UUID4, int]}
    assert check(days, {"it": {TEXT: 1}, "ids": {str(KEY): 1}}) == []
    assert len(check(days, {"it": {"x": 1}, "ids": {}})) == 1


def test_a_field_may_have_the_name_of_a_keyword(check):
    class Odd(TypedDict):
        default: date
        properties: date
        enum: Decimal

    good = {"default": DAY, "properties": DAY, "enum": Decimal(1)}
    bad = {"default": TEXT, "properties": TEXT, "enum": "1"}
    assert check({"it": Odd}, {"it": good}) == []
    assert sorted(check({"it": Odd}, {"it": bad})) == ["it.default", "it.enum", "it.properties"]


def test_a_discriminator_refers_to_the_alternatives(check):
    """The mapping of a discriminator refers to the same definitions as the alternatives."""

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
