"""A Type: as it is registered, and as its attempts need it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from ...models import Type


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The parameters of a Type, as registration writes them."""

    identifier: str
    handler: str
    timeout: timedelta | None
    max_restarts: int
    max_retries: int
    backoff: timedelta
    backoff_max: timedelta
    retention: timedelta | None
    serializer: str
    max_memory: int | None
    downstream: str = ""
    owner: str = ""
    runbook: str = ""
    sensitive: list[str] | None = None
    # In the format of :mod:`atp.store.values.hooks`.
    hooks: list[dict[str, Any]] | None = None
    # The former identifiers of the Type.
    formerly: tuple[str, ...] = field(default=(), compare=False)
    # The Types of these hooks, and of hooks in options: they are registered together with it.
    hook_types: tuple[Registration, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, type: Type) -> Self:
        """Return the parameters in the row of a Type."""
        return cls(**{name: getattr(type, name) for name in _columns()})

    @classmethod
    def of_all(cls, registrations: Iterable[Self]) -> Self:
        """Return one of several registrations of a Type, with the Types of all their hooks."""
        first, *others = registrations
        types = {each.identifier: each for one in (first, *others) for each in one.hook_types}
        if len(types) == len(first.hook_types):
            return first
        return replace(first, hook_types=tuple(types.values()))

    def columns(self) -> dict[str, Any]:
        """Return the columns of the Type, by name. ``asdict`` would copy each value."""
        return {name: getattr(self, name) for name in _columns()}


_NO_COLUMNS = ("formerly", "hook_types")


@cache
def _columns() -> tuple[str, ...]:
    return tuple(each.name for each in fields(Registration) if each.name not in _NO_COLUMNS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """The parameters of a Type that an attempt of one of its Instances needs."""

    type: str
    timeout: timedelta | None
    max_retries: int
    backoff: timedelta
    backoff_max: timedelta
    max_restarts: int
    max_memory: int | None
