"""What a scan finds: the values of :meth:`~atp.store.base.Store.scan`."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import TextChoices


class Trouble(TextChoices):
    """What should never be. The label says it of one Instance, or of one daemon."""

    UNCLAIMED = "unclaimed", "due for long and not claimed, although an idle daemon serves its Type"
    TASKLESS = "taskless", "live, but without a Task"
    ENDED = "ended", "has ended, but had a Task"
    ORPHANED = "orphaned", "a Task was there, but no Instance"
    MISMATCHED = "mismatched", "Instance and Task disagree on whether a daemon holds it"
    OWNERLESS = "ownerless", "held by a daemon that has no row"
    UNSWEPT = "unswept", "lost long ago, and nobody has taken away what it holds"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that should not be, of an Instance or of a daemon, and what was done about it.

    ``since`` is when it was due, or when the lease ended; None if that is not
    known. ``done`` says what was done; it is empty where nothing was.
    """

    trouble: Trouble
    instance: UUID | None = None
    type: str = ""
    daemon: str = ""
    since: datetime | None = None
    done: str = ""

    @property
    def key(self):
        """What tells it from every other."""
        return self.trouble, self.instance, self.type, self.daemon

    def __str__(self):
        named = f"daemon {self.daemon}" if self.daemon else self.type
        named = f"{named} {self.instance}" if self.instance else named
        return f"{named}: {self.trouble.label}" + (f"; {self.done}" if self.done else "")


@dataclass(frozen=True, kw_only=True)
class Place:
    """How far a walk through the tables has come, from the newest key downwards.

    Each is the next key to look at, None where it begins with the newest, and 0 where
    there is none left.
    """

    task: int | None = None
    instance: int | None = None


# Nothing but what indexes tell at once.
NOWHERE = Place(task=0, instance=0)


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What a scan found, and where the next one goes on."""

    findings: tuple[Finding, ...] = ()
    place: Place = Place()

    @property
    def is_round(self):
        """Whether the walk has come to the end of both tables."""
        return self.place == Place()
