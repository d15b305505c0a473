"""A literal member of an Enum is given as its value."""

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


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


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (Literal[Colour.RED], "red", "blue"),
        (Literal[Colour.RED, "green", None], "red", "blue"),
        (Literal[Colour.RED, "green", None], "green", "blue"),
        (Literal[Colour.RED] | int, "red", "blue"),
        (list[Literal[Colour.RED]], ["red", "red"], ["blue"]),
        (dict[str, tuple[Literal[Colour.BLUE], int]], {"a": ["blue", 1]}, {"a": ["red", 1]}),
        (Red, {"kind": "red"}, {"kind": "blue"}),
        (Annotated[Red | Blue, Field(discriminator="kind")], {"kind": "blue"}, {"kind": "x"}),
    ],
)
def test_a_literal_member_of_an_enum_is_given_as_its_value(check, annotation, good, bad):
    assert check({"it": annotation}, {"it": good}) == []
    assert len(check({"it": annotation}, {"it": bad})) == 1


def test_validators_are_asked_beside_a_literal_member_of_an_enum(check):
    class Priced(TypedDict):
        kind: Literal[Colour.RED]
        price: Annotated[Decimal, Field(gt=0)]

    assert check({"it": Priced}, {"it": {"kind": "red", "price": Decimal(1)}}) == []
    assert check({"it": Priced}, {"it": {"kind": "red", "price": Decimal(-1)}}) == ["it.price"]


@pytest.mark.parametrize("kind", [Painted, PaintedData, TypedDict("Held", {"it": Painted})])
def test_a_class_of_pydantic_says_itself_which_literals_it_takes(check, kind):
    """Painted.model_validate() refuses the value, so a handler could not use it."""
    value = {"kind": "red"}
    given = value if kind in (Painted, PaintedData) else {"it": value}
    [path] = check({"it": kind, "other": Literal[Colour.RED]}, {"it": given, "other": "red"})
    assert path.endswith("it.kind")
