"""The findings of a check of the queue before a deploy, as data with a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import TextChoices

from ...conf import settings
from ...models import Instance


class Kind(TextChoices):
    """The kind of a finding. The last three are notes: nothing fails because of them."""

    MISFIT = "misfit", "the handler does not take the inputs"
    UNDECLARED = "undeclared", "no code declares the Type"
    UNREADABLE = "unreadable", "the inputs cannot be read"
    FORMAT = "format", "the inputs may not be read: pickle, or its signature"
    RESULT = "result", "a result of another node of its graph is not there"
    ADAPTED = "adapted", "the inputs are adapted to the handler"
    UNOPENED = "unopened", "the inputs were not opened"
    LEFTOVER = "leftover", "a gate or limits are set of a Type that no code declares"


_NOTES = frozenset({Kind.ADAPTED, Kind.UNOPENED, Kind.LEFTOVER})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding about Instances of a ``type``, or about a ``schedule``.

    ``count`` is the number of Instances, ``instance`` the uuid of one of them, ``since`` when the
    first was enqueued. All three are None if it is not about Instances.
    """

    kind: Kind
    type: str
    schedule: str = ""
    why: str = ""
    count: int | None = None
    instance: UUID | None = None
    since: datetime | None = None

    @property
    def fails(self) -> bool:
        """Whether the Instances or the schedule cannot run as they are."""
        return self.kind not in _NOTES


@dataclass
class _Group:
    count: int
    key: int
    since: datetime | None


@dataclass
class Collected:
    """Collects findings about Instances; those of one kind, Type and reason become one Finding."""

    _groups: dict[tuple[Kind, str, str], _Group] = field(default_factory=dict)

    def add(
        self, kind: Kind, type: str, why: str, keys: Sequence[int], since: datetime | None
    ) -> None:
        """Add Instances by key; ``since`` is the time at which the first of them was enqueued."""
        if not keys:
            return
        group = self._groups.get((kind, type, why))
        if group is None:
            self._groups[kind, type, why] = _Group(len(keys), keys[0], since)
            return
        group.count += len(keys)
        group.since = min(filter(None, (group.since, since)), default=None)

    def findings(self) -> list[Finding]:
        """Return a Finding for each group, sorted as by :func:`in_order`."""
        keys = [group.key for group in self._groups.values()]
        rows = Instance.objects.using(settings.DATABASE).filter(pk__in=keys)
        uuids = dict(rows.values_list("pk", "uuid"))
        found = [
            Finding(
                kind=kind,
                type=type,
                why=why,
                count=group.count,
                instance=uuids.get(group.key),
                since=group.since,
            )
            for (kind, type, why), group in self._groups.items()
        ]
        return in_order(found)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings for display: those that fail first, then by Type."""
    return sorted(findings, key=lambda each: (not each.fails, each.type, each.kind, each.why))
