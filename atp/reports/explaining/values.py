"""The values of an explanation: frozen, with named fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Help:
    """An act that would resolve a cause.

    ``verb`` is its name in the table of verbs, empty if it is no verb; ``label`` names it for
    people. ``command`` is a shell command. ``permission`` is what a user of pages and API needs for
    it; empty if it is done on the host of the daemons or of the database.
    """

    label: str
    command: str
    verb: str = ""
    permission: str = ""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One cause: its ``code``, and a ``sentence`` about it.

    ``facts`` are its numbers and names, as plain values by name. ``since`` is when it began and
    ``until`` when it ends by itself; None if unknown. ``helps`` is the act that would resolve it;
    None if nobody needs to act, or nobody can.
    """

    code: str
    sentence: str
    facts: dict[str, Any] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    helps: Help | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate of the time until the start: ``low``, ``likely`` and ``high``.

    All are None if the end is unknown; ``why`` is then the code of the cause. Where more Tasks wait
    than are counted, ``why`` is "many": then ``high`` is None, and ``likely`` too if they are
    ahead of it in its lane.
    """

    low: timedelta | None = None
    likely: timedelta | None = None
    high: timedelta | None = None
    why: str = ""

    @property
    def is_open(self) -> bool:
        return self.likely is None

    def __iter__(self) -> Iterator[timedelta | None]:
        return iter((self.low, self.likely, self.high))


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The reasons why something does not run, at ``looked_at`` by the database's clock.

    ``subject`` is the uuid of an Instance, the identifier of a Type, or that and a collection.
    ``state`` is the Instance's state; empty for a Type or a missing Instance. The first of
    ``reasons`` must be resolved first. ``ahead`` is the number of Instances of the lane that start
    before it, counted up to MOST_COUNTED; None if it does not wait. ``starts`` is None if it will
    never start.
    """

    subject: str
    state: str
    reasons: tuple[Reason, ...]
    ahead: int | None = None
    starts: Estimate | None = None
    looked_at: datetime

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(reason.code for reason in self.reasons)

    def has(self, *codes: str) -> bool:
        """Whether one of these codes is among the reasons."""
        return any(code in self.codes for code in codes)
