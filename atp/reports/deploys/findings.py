"""What a look at the queue before a deploy has found, as data with a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import TextChoices

from ...conf import settings
from ...models import Instance


class Kind(TextChoices):
    """The kind of a finding. The last three are worth knowing, and nothing fails by them."""

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
    """Instances of a ``type``, or a ``schedule``, with what was found of them.

    ``count`` is the number of the Instances, ``instance`` the uuid of one of them, ``since``
    when the first was enqueued; None where it is about no Instances.
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
        """Whether what was found cannot run as it is."""
        return self.kind not in _NOTES


@dataclass
class _Group:
    count: int
    key: int
    since: datetime | None


@dataclass
class Collected:
    """Collects what is found of Instances; alike is one Finding."""

    _groups: dict[tuple[Kind, str, str], _Group] = field(default_factory=dict)

    def add(
        self, kind: Kind, type: str, why: str, keys: Sequence[int], since: datetime | None
    ) -> None:
        """Add Instances, by key; ``since`` is when the first of them was enqueued."""
        if not keys:
            return
        group = self._groups.get((kind, type, why))
        if group is None:
            self._groups[kind, type, why] = _Group(len(keys), keys[0], since)
            return
        group.count += len(keys)
        group.since = min(filter(None, (group.since, since)), default=None)

    def findings(self) -> list[Finding]:
        """Return a Finding for each group, those that fail first, then by Type."""
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
    """Return findings as they are shown: what fails first, then by Type."""
    return sorted(findings, key=lambda each: (not each.fails, each.type, each.kind, each.why))
