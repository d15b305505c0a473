"""Types whose annotations describe their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional
from uuid import UUID

from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from atp import task_type

if TYPE_CHECKING:
    from nowhere import Unimportable


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Line(TypedDict):
    sku: str
    count: int


class Order(BaseModel):
    number: int
    placed: date
    total: Decimal
    lines: list[Line] = []

    @field_validator("number")
    @classmethod
    def _is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("odd numbers are taken")
        return number


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Opaque:
    pass


@task_type("tests.contract")
def contract(
    context,
    *,
    count: int,
    ratio: float = 1.0,
    is_wet: bool = False,
    name: str | None = None,
    note: Optional[str] = "none",  # noqa: UP045
    mode: Literal["fast", "slow"] = "fast",
    colour: Colour = "red",
    point: Point | None = None,
    line: Line | None = None,
    order: Order | None = None,
    tree: Tree | None = None,
    day: date | None = None,
    at: datetime | None = None,
    clock: time | None = None,
    lasting: timedelta | None = None,
    key: UUID | None = None,
    price: Annotated[Decimal, Field(gt=0)] | None = None,
    data: bytes | None = None,
    where: Path | None = None,
    percent: Annotated[int, Field(ge=0, le=100)] = 50,
    tags: list[str] = (),
    pair: tuple[int, str] | None = None,
    unique: set[int] | None = None,
    counts: dict[str, int] | None = None,
    limit: int = None,  # noqa: RUF013
    anything=None,
) -> dict[str, int]:
    """Take one of each kind.

    Args:
        count: how many there are,
            in all
        ratio (float): of one to the other
    """
    return {"count": count}


@task_type("tests.contract_positional")
def positional(context, first: int, /, second: str, *more: float, last: int = 0, **named: bool):
    """Take arguments in each way.

    :param first: the first of all
    """


@task_type("tests.contract_opaque")
def opaque(context, *, thing: Opaque = None, lost: Unimportable = None, plain: int = 0) -> Opaque:
    """Take what has no schema."""


@task_type("tests.contract_slot")
def with_slot(context, *, slot: datetime, count: int = 0):
    """Run by a schedule."""
