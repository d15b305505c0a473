"""The findings of a scan: the values of :meth:`~atp.store.contract.Store.scan`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import TextChoices

from .. import messages


class Trouble(TextChoices):
    """Conditions that should never arise. Each label describes an Instance, daemon or schedule."""

    UNCLAIMED = "unclaimed", messages.unclaimed()
    TASKLESS = "taskless", "live, but without a Task"
    ENDED = "ended", "has ended, but had a Task"
    ORPHANED = "orphaned", "its Task was there, but the Instance was gone"
    MISMATCHED = "mismatched", "Instance and Task disagree on whether a daemon holds it"
    OWNERLESS = "ownerless", "held by a daemon that has no row"
    UNSWEPT = "unswept", "lost long ago, and no other daemon has taken its Tasks away"
    MISCOUNTED = "miscounted", "a Task that waited for other Tasks, with a wrong count of them"
    UNPLANNED = "unplanned", "a schedule with a slot long due that no daemon has planned"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Trouble with an Instance, a daemon or a schedule, and what was done about it.

    ``since`` is the time when it was due, or when the lease ended; None if unknown. ``why`` is the
    reason, if known. ``done`` says what was done, and is empty if nothing was.
    """

    trouble: Trouble
    instance: UUID | None = None
    type: str = ""
    daemon: str = ""
    schedule: str = ""
    since: datetime | None = None
    why: str = ""
    done: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """The fields that distinguish this finding from all others."""
        return self.trouble, self.instance, self.type, self.daemon, self.schedule

    def __str__(self) -> str:
        named = f"daemon {self.daemon}" if self.daemon else self.type
        named = f"{named} {self.instance}" if self.instance else named
        named = f"schedule {self.schedule}" if self.schedule else named
        told = [self.trouble.label, *filter(None, (self.why, self.done))]
        return f"{named}: {'; '.join(told)}"


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The position of a walk through the tables Task and Instance, from the newest key downwards.

    Each field is the next key to look at: None begins with the newest, and 0 means the end.
    """

    task: int | None = None
    instance: int | None = None


# A scan from here walks through no table, and looks only at what indexes show at once.
NOWHERE = Cursor(task=0, instance=0)


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """The outcome of a scan, and the cursor for the next one."""

    findings: tuple[Finding, ...] = ()
    cursor: Cursor = Cursor()

    @property
    def is_round(self) -> bool:
        """Whether this scan has reached the last row of both tables, Task and Instance."""
        return self.cursor == Cursor()


class Marks(dict[Any, Any]):
    """How far a purge has come: by key of a Type and kind of reasons, the last end that it met.

    ``passes_kept`` says that the last call met as many as it may remove, and kept some of them,
    as their files cannot be removed. Then others may lie behind them.
    """

    passes_kept = False
