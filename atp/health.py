"""Whether the queue is being worked on: what a probe asks, and what an operator wants to know."""

import pkgutil
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import import_module

from django.db import Error, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Min, OuterRef, Subquery

from . import documents, modes, overview, queue, wording
from .conf import settings
from .controls import gates
from .models import Task, Type
from .modes import Mode
from .querysets import LANES_ORDER
from .store.findings import Trouble

OK, FAILING = "ok", "failing"
_APP = "atp"


@dataclass(frozen=True, kw_only=True)
class Health:
    """How it is at ``time``, by the database's clock.

    ``database`` tells whether it answers and has been migrated; if not, the
    rest is unknown. ``daemons`` counts those alive, late and lost. ``problems``
    are sentences; there are none if all is well.
    """

    time: datetime | None = None
    database: bool = False
    daemons: dict = field(default_factory=dict)
    problems: tuple = ()

    @property
    def status(self):
        return FAILING if self.problems else OK


def health():
    """Return the :class:`Health` of the queue; a database that does not answer is no error.

    It fails when the database does not answer or has not been migrated, or
    when work is due and no daemon with a live lease serves its Type (a quiet one
    does not, nor one that is stopping), or is in the hands of a lost one with
    nobody alive to take it over; or when what indexes tell is as it should never
    be. It takes as long with a million waiting Tasks as with one.
    """
    try:
        missing = _migrations_missing()
        if missing:
            names = ", ".join(missing)
            return Health(problems=(f"The database has not been migrated: it lacks {names}.",))
        return _health()
    except Error:
        return Health(problems=("The database does not answer.",))


def oldest_due():
    """Return when the Task was due that has been waiting longest, or None; it looks at all."""
    tasks = Task.objects.using(settings.DATABASE).due(overview.now())
    return tasks.aggregate(oldest=Min("due_at"))["oldest"]


def _health():
    time = overview.now()
    daemons = overview.daemons()
    counted = Counter(overview.condition(row, time) for row in daemons)
    names = (overview.ALIVE, overview.LATE, overview.LOST)
    return Health(
        time=time,
        database=True,
        daemons={name: counted[name] for name in names},
        problems=problems(daemons, time),
    )


def problems(daemons, time, shut=None):
    """Return sentences about all that is wrong, of all daemons as they are at a time.

    ``shut`` are the gates that are, if they are known already.
    """
    shut = gates(now=time) if shut is None else shut
    return (*_unattended(daemons, time, shut), *_suspicions(time))


def _unattended(daemons, time, shut):
    """What nobody works on."""
    told = [documents.daemon(row, time) for row in daemons]
    living = [daemon for daemon in told if daemon["condition"] != overview.LOST]
    if not living:
        return _without_daemons(told, time, shut)
    aims = _aims(living)
    served = {identifier for identifier, found in aims.items() if Mode.RUNNING in found}
    return tuple(
        f"Work of Type {identifier!r} is due, and {_why_not(aims.get(identifier))}."
        for identifier in _due_besides(served, time, shut)
    )


_SUSPICIONS = {
    Trouble.UNCLAIMED: "Work of Type {type!r} has been due for {since} ({count} in all), and an "
    "idle daemon that serves it does not claim it. Restart that daemon; manage.py atp check says "
    "more.",
    Trouble.UNSWEPT: "Daemon {daemon} was lost {since} ago, and no other takes away what it "
    "holds. See the others' logs; manage.py atp check takes it away.",
    Trouble.OWNERLESS: "Daemon {daemon} has no row any more, but holds Tasks. A daemon or "
    "manage.py atp check will take them away.",
}


def _suspicions(time):
    """What should never be, as far as indexes tell it, and what to do about it."""
    groups = defaultdict(list)
    for finding in queue.suspicions():
        groups[finding.trouble, finding.type, finding.daemon].append(finding)
    return tuple(
        _SUSPICIONS[trouble].format(
            count=len(findings),
            type=type,
            daemon=daemon,
            since=wording.age(min((f.since for f in findings if f.since), default=time), time),
        )
        for (trouble, type, daemon), findings in groups.items()
    )


def quieted(daemons, time):
    """Identifiers of the Types that only quiet daemons serve: somebody has to resume one."""
    told = [documents.daemon(row, time) for row in daemons]
    aims = _aims([daemon for daemon in told if daemon["condition"] != overview.LOST])
    return sorted(
        identifier
        for identifier, found in aims.items()
        if Mode.QUIET in found and Mode.RUNNING not in found
    )


def _aims(living):
    """The modes of the daemons that serve each Type, as they are or will be soon."""
    aims = defaultdict(set)
    for daemon in living:
        for identifier in daemon["types"]:
            aims[identifier].add(modes.aim(daemon["mode"], daemon["request"]))
    return aims


def unserved(identifier, daemons, time):
    """Return why nobody serves a Type, in words; empty if a daemon does."""
    told = [documents.daemon(row, time) for row in daemons]
    living = [daemon for daemon in told if daemon["condition"] != overview.LOST]
    if not living:
        return "no daemon is alive"
    aims = _aims(living).get(identifier, ())
    return "" if Mode.RUNNING in aims else _why_not(aims)


def _why_not(aims):
    if not aims:
        return "no daemon serves it"
    return f"what serves it is {' or '.join(sorted(aims))}"


def _without_daemons(lost, time, shut):
    """What nobody works on where there is no daemon with a lease at all."""
    found = []
    if _due_besides((), time, shut):
        found.append("Work is due, and no daemon is alive.")
    held = Task.objects.using(settings.DATABASE).claimed().values_list("daemon__uuid", flat=True)
    holders = set(held.distinct())
    for daemon in lost:
        if daemon["uuid"] in holders:
            name = f"{daemon['host']}:{daemon['pid']}"
            found.append(f"Daemon {name} was lost with work in hand, and none is alive to go on.")
    return tuple(found)


def _due_besides(served, time, shut):
    """Identifiers of the Types of which work is due, but those in ``served``."""
    due = Task.objects.using(settings.DATABASE).due(time).filter(type=OuterRef("pk"))
    types = Type.objects.using(settings.DATABASE).exclude(identifier__in=served)
    for gate in shut:
        # What is held is not to be worked on.
        if gate.type_id is None:
            return []
        if gate.collection is None:
            types = types.exclude(pk=gate.type_id)
        else:
            due = due.exclude(type=gate.type_id, collection=gate.collection)
    # One look for each Type instead of one at all that is due.
    first = due.order_by(*LANES_ORDER).values("pk")[:1]
    waiting = types.annotate(first=Subquery(first)).filter(first__isnull=False)
    return list(waiting.values_list("identifier", flat=True))


def _migrations_missing():
    """Names of the migrations of ATP that this code has and the queue's database has not."""
    recorder = MigrationRecorder(connections[settings.DATABASE])
    applied = ()
    if recorder.has_table():
        applied = set(recorder.migration_qs.filter(app=_APP).values_list("name", flat=True))
    return [name for name in _migrations() if name not in applied]


@cache
def _migrations():
    module, _ = MigrationLoader.migrations_module(_APP)
    if module is None:  # the project has switched them off
        return []
    found = pkgutil.iter_modules(import_module(module).__path__)
    return sorted(each.name for each in found if each.name[0] not in "_~")
