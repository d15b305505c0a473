"""The releases that the living daemons run, the Tasks that they hold, and the Types that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count

from ...conf import settings
from ...models import Daemon, Task
from ...words import orders
from ...words.orders import Mode
from .. import documents, overview
from ..documents import Document


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release ("" if its daemons tell none) and the ``daemons`` that run it, as host:pid.

    ``held`` is the number of Tasks that they hold. ``differs`` are the Types whose handler has
    another signature in another living daemon. ``claims`` tells whether one of the daemons claims
    Tasks; otherwise all are quiet or stopping.
    """

    release: str
    daemons: tuple[str, ...]
    held: int
    differs: tuple[str, ...]
    claims: bool

    @property
    def is_drained(self) -> bool:
        """Whether its daemons can be stopped without handing back any Task."""
        return not self.held and not self.claims


def living(daemons: Iterable[Daemon], time: datetime) -> list[Document]:
    """Return the daemons with a valid lease, as documents with their ``misfits``."""
    return [each for each in told(daemons, time) if each["condition"] != overview.LOST]


def told(daemons: Iterable[Daemon], time: datetime) -> list[Document]:
    """Return all these daemons, lost ones too, as documents with their ``misfits``."""
    return [documents.daemon(row, time) | {"misfits": _misfits(row)} for row in daemons]


def name(daemon: Document) -> str:
    """Return the name of a daemon, with its release if it has one."""
    release = f" (release {daemon['release']})" if daemon["release"] else ""
    return f"{daemon['host']}:{daemon['pid']}{release}"


def signatures(alive: Iterable[Document]) -> dict[str, set[str]]:
    """Return the handler signatures of the living daemons by Type, as their rows show them."""
    found = defaultdict(set)
    for daemon in alive:
        for type, signature in daemon["signatures"].items():
            found[type].add(signature)
    return found


def claims(daemon: Document) -> bool:
    """Whether a daemon claims Tasks, or will once it has obeyed its pending order, if any."""
    return orders.aim(daemon["mode"], daemon["request"]) is Mode.RUNNING


def releases(daemons: Iterable[Daemon], time: datetime) -> list[Release]:
    """Return the releases of the living daemons, sorted by name."""
    alive = living(daemons, time)
    differing = {type for type, found in signatures(alive).items() if len(found) > 1}
    held = _held([daemon["uuid"] for daemon in alive])
    groups = defaultdict(list)
    for daemon in alive:
        groups[daemon["release"]].append(daemon)
    return [
        Release(
            release=release,
            daemons=tuple(f"{each['host']}:{each['pid']}" for each in own),
            held=sum(held.get(each["uuid"], 0) for each in own),
            differs=tuple(sorted(differing & {type for each in own for type in each["types"]})),
            claims=any(map(claims, own)),
        )
        for release, own in sorted(groups.items())
    ]


def _misfits(row: Daemon) -> dict[str, list[int]]:
    """Return the keys of Instances whose inputs a daemon has recently refused, by Type."""
    told = row.misfits if isinstance(row.misfits, dict) else {}
    return {
        type: [key for key in keys if isinstance(key, int)]
        for type, keys in told.items()
        if isinstance(keys, list)
    }


def _held(uuids: list[UUID]) -> dict[UUID, int]:
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__uuid__in=uuids)
    return dict(tasks.order_by().values_list("daemon__uuid").annotate(Count("pk")))
