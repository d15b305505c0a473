"""The values of an explanation: frozen, with named fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Help:
    """An act that would end a cause.

    ``verb`` is its name in the table of verbs, empty where no verb helps, and ``label`` tells
    it to people. ``command`` is a line for a shell, and ``permission`` what a user of pages and
    API needs for it; empty where it is done on the host of the daemons or of the database.
    """

    label: str
    command: str
    verb: str = ""
    permission: str = ""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One cause: its ``code``, and a ``sentence`` about it.

    ``facts`` are its numbers and names, plain values by name. ``since`` is when it began and
    ``until`` when it ends by itself; None if that is not known. ``helps`` is the act that would
    end it; None where nobody has to act, or nobody can.
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

    All are None where the end is open; ``why`` is the code of the cause for that.
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
    """Why something does not run, at ``looked_at`` by the database's clock.

    ``subject`` is the uuid of an Instance, the identifier of a Type, or that and a collection.
    ``state`` is the Instance's state; empty for a Type, and for an Instance that there is not.
    ``reasons`` come in the order of what would have to go first. ``ahead`` is the number of
    Instances of the lane that start before it, counted up to 1,000; None where it does not wait.
    ``starts`` is None where nothing is to start any more.
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
        """Whether one of these causes is among the reasons."""
        return any(code in self.codes for code in codes)
