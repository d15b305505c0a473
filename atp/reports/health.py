"""The health of the queue: problems, and notes about due Tasks that gates or limits delay."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import Error
from django.db.models import Exists, Min, OuterRef, Q, Subquery

from .. import commands, text
from ..commands import Mode
from ..conf import settings
from ..downstreams.protection import State
from ..models import Daemon, Downstream, Gate, Limit, Schedule, Tailer, Task, Type
from ..operations import base, daemons
from ..operations.gates import gates, limits
from ..querysets import LANES_ORDER, TaskQuerySet
from ..store import get_store
from ..store.findings import Trouble
from . import documents, overview, releases
from .documents import Document
from .explaining import causes, sentences
from .explaining.gathering import check_full, limits_with_counts

OK, FAILING = "ok", "failing"
# A transaction that others wait for is a problem after it has been open for this many seconds.
BLOCKING = 10.0
# A tailer's lost records are a problem for this long. Its log and its counts show them longer.
LOST_FOR = timedelta(days=1)
# The longest error of a tailer in a problem, in characters.
MAX_ERROR = 500
# At most this many Tasks are counted for a note, and this many gates and limits are listed.
MOST, SHOWN = 1000, 20
NOTHING = "no waiting Task is due"


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of the queue at ``time``, by the database's clock.

    ``database`` is True if the database answers and has been migrated; otherwise the other fields
    except ``problems`` keep their defaults. ``daemons`` has the numbers of daemons that are alive,
    late and lost. ``problems`` contains sentences, and is empty if the queue is healthy.
    """

    time: datetime | None = None
    database: bool = False
    daemons: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return FAILING if self.problems else OK


def health(type: str | None = None) -> Health:
    """Return the :class:`Health` of the queue, even if the database does not answer.

    With the identifier of a ``type``, only the work of this Type is checked.

    The status is "failing" in these cases: the database does not answer or has not been migrated;
    work is due and no daemon with a valid lease serves its Type (a quiet or stopping daemon does
    not count); a lost daemon holds work and no living daemon can rescue it; a tailer has paused its
    schedule, has lost records within a day, or cannot read some of its source; indexes show an
    inconsistent state; a downstream fails while work that calls it is due; or a transaction that
    has been open for long keeps other sessions waiting. The check takes as long with a million
    waiting Tasks as with one.
    """
    try:
        missing = base.missing_migrations()
        if missing:
            lacks = f"The database has not been migrated: it lacks {', '.join(missing)}."
            return Health(problems=(f"{lacks} Run {base.migrate_command(settings.DATABASE)}.",))
        return _check_queue(type)
    except Error:
        return Health(problems=("The database does not answer.",))


def oldest_due(type: str | None = None) -> datetime | None:
    """Return the earliest due time of the due Tasks, or None. This reads all due Tasks."""
    tasks = Task.objects.using(settings.DATABASE).due(overview.now())
    tasks = tasks.filter(type__identifier=type) if type else tasks
    return tasks.aggregate(oldest=Min("due_at"))["oldest"]


def _check_queue(type: str | None) -> Health:
    time = overview.now()
    daemons = overview.daemons()
    counted = Counter(overview.condition(row, time) for row in daemons)
    names = (overview.ALIVE, overview.LATE, overview.LOST)
    return Health(
        time=time,
        database=True,
        daemons={name: counted[name] for name in names},
        problems=problems(daemons, time, type=type),
    )


def problems(
    daemons: Iterable[Daemon],
    time: datetime,
    shut: Iterable[Gate] | None = None,
    type: str | None = None,
    *,
    names: bool = True,
) -> tuple[str, ...]:
    """Return sentences about all problems of the queue.

    ``daemons`` are the Daemon rows as read at ``time``. ``shut`` are the shut gates, if the caller
    has read them. With the identifier of a ``type``, only the work of this Type is checked. Without
    ``names``, the sentences do not contain the names of daemons.
    """
    shut = gates(now=time) if shut is None else shut
    return (
        *_find_unattended_work(daemons, time, shut, type, names),
        *releases.describe_refused_inputs(daemons, time, type),
        *_find_tailer_problems(time, type),
        *_find_inconsistencies(time, type, names),
        *_find_failing_downstreams(time, type),
        *_find_blocking_transactions(time),
    )


def _find_failing_downstreams(time: datetime, type: str | None) -> tuple[str, ...]:
    """Return a sentence about each downstream that fails while work that calls it is due."""
    due = Task.objects.using(settings.DATABASE).due(time)
    calling = Type.objects.using(settings.DATABASE).filter(downstream=OuterRef("name"))
    calling = calling.filter(identifier=type) if type else calling
    # One index look-up for each Type, as in _types_with_due_work().
    first = due.filter(type=OuterRef("pk")).order_by(*LANES_ORDER).values("pk")[:1]
    waiting = calling.annotate(first=Subquery(first)).filter(first__isnull=False)
    rows = Downstream.objects.using(settings.DATABASE).exclude(state=State.CLOSED)
    rows = rows.exclude(state=State.THROTTLED).filter(Exists(waiting))
    return tuple(
        f"Downstream {row.name!r} has failed for {text.age(row.since, time)}, and work that "
        "calls it is due."
        for row in rows.order_by("name")
    )


def _find_blocking_transactions(time: datetime) -> tuple[str, ...]:
    """Return a sentence about each long open transaction that delays other sessions or daemons.

    Daemons do not wait for the lock of a table; they try again later.
    """
    _, found = get_store().open_transactions(BLOCKING, locking=BLOCKING)
    return tuple(
        f"{sentences.transaction(each, time)} To end it: {causes.terminate_help(each.pid).command}"
        for each in found
        if each.waits_for_it or each.locked
    )


def _find_tailer_problems(time: datetime, type: str | None) -> Iterator[str]:
    """Yield sentences about tailers that are paused, have lost records, or cannot read some."""
    rows = Tailer.objects.using(settings.DATABASE).filter(
        ~Q(error="") | Q(skipped__gt=0) | Q(lost_at__gt=time - LOST_FOR)
    )
    found = list(rows.filter(identifier=type) if type else rows)
    if not found:
        return
    schedules = Schedule.objects.using(settings.DATABASE).in_bulk(
        [row.identifier for row in found], field_name="identifier"
    )
    for row in found:
        schedule = schedules.get(row.identifier)
        if schedule is None or schedule.retired is None:
            yield from _describe_tailer(row, schedule, time)


def _describe_tailer(row: Tailer, schedule: Schedule | None, time: datetime) -> Iterator[str]:
    show = f"manage.py atp tailer show {row.identifier} shows details."
    if row.error and schedule is not None and schedule.is_paused(time):
        yield (
            f"Tailer {row.identifier!r} has paused its schedule: "
            f"{text.shorten(row.error, MAX_ERROR)} "
            f"Fix the cause, then run manage.py atp schedule resume {row.identifier}."
        )
    elif row.error and schedule is None:
        yield (
            f"The last attempt of tailer {row.identifier!r} has failed: "
            f"{text.shorten(row.error, MAX_ERROR)}"
        )
    if row.lost_at is not None and row.lost_at > time - LOST_FOR:
        yield (
            f"Tailer {row.identifier!r} found {text.age(row.lost_at, time)} ago that its "
            f"source had removed records before the tailer read them; {row.lost} have been lost "
            f"since it was declared. {show}"
        )
    if row.skipped:
        yield f"Tailer {row.identifier!r} cannot read {row.skipped} records of its source. {show}"


def _daemon_name(name: str, names: bool) -> str:
    """Return the words for a daemon; without ``names`` they are only "A daemon"."""
    return f"Daemon {name}" if names else "A daemon"


def _find_unattended_work(
    daemons: Iterable[Daemon], time: datetime, shut: Iterable[Gate], type: str | None, names: bool
) -> tuple[str, ...]:
    """Return sentences about due work that no daemon claims."""
    every = [documents.daemon(row, time) for row in daemons]
    living = [daemon for daemon in every if daemon["condition"] != overview.LOST]
    if not living:
        return _find_abandoned_work(every, time, shut, type, names)
    modes = _modes_by_type(living)
    served = {identifier for identifier, found in modes.items() if Mode.RUNNING in found}
    return tuple(
        f"Work of Type {identifier!r} is due, and {_why_unserved(modes.get(identifier))}."
        for identifier in _types_with_due_work(served, time, shut, type)
    )


_SUSPICIONS = {
    Trouble.UNCLAIMED: "Work of Type {type!r} has been due for {since} ({count} in all), and an "
    "idle daemon that serves the Type does not claim it. Restart that daemon; manage.py atp check "
    "shows details.",
    Trouble.UNSWEPT: "{daemon} was lost {since} ago, and no other daemon has rescued its "
    "Tasks. Read the logs of the other daemons; manage.py atp check rescues the Tasks.",
    Trouble.OWNERLESS: "{daemon} has no row any more, but holds Tasks. A daemon or "
    "manage.py atp check will rescue the Tasks.",
    Trouble.UNPLANNED: "Schedule {schedule!r} has been due for {since} ({count} of its Type), but "
    "no daemon has planned its slots. {why}",
}


def _find_inconsistencies(time: datetime, type: str | None, names: bool) -> tuple[str, ...]:
    """Return sentences about inconsistent states that indexes show, each with a remedy."""
    groups = defaultdict(list)
    found = daemons.suspicions(now=time)
    for finding in found if type is None else [each for each in found if each.type == type]:
        groups[finding.trouble, finding.type, finding.daemon].append(finding)
    return tuple(
        _SUSPICIONS[trouble].format(
            count=len(findings),
            type=type,
            daemon=_daemon_name(daemon, names),
            schedule=findings[0].schedule,
            why=findings[0].why or "Restart the daemons, and read their logs.",
            since=text.age(min((f.since for f in findings if f.since), default=time), time),
        )
        for (trouble, type, daemon), findings in groups.items()
    )


def quiet_types(daemons: Iterable[Daemon], time: datetime) -> list[str]:
    """Return the identifiers of the Types that quiet daemons serve and no daemon claims."""
    every = [documents.daemon(row, time) for row in daemons]
    modes = _modes_by_type([daemon for daemon in every if daemon["condition"] != overview.LOST])
    return sorted(
        identifier
        for identifier, found in modes.items()
        if Mode.QUIET in found and Mode.RUNNING not in found
    )


def _modes_by_type(living: Iterable[Document]) -> Mapping[str, set[Mode]]:
    """Return the modes of the daemons that serve each Type, by identifier.

    Pending commands to the daemons count as carried out.
    """
    modes = defaultdict(set)
    for daemon in living:
        for identifier in daemon["types"]:
            modes[identifier].add(commands.mode_after(daemon["mode"], daemon["request"]))
    return modes


def _why_unserved(modes: Collection[Mode] | None) -> str:
    if not modes:
        return "no daemon serves it"
    return f"every daemon that serves it is {' or '.join(sorted(modes))}"


def _find_abandoned_work(
    lost: Iterable[Document],
    time: datetime,
    shut: Iterable[Gate],
    type: str | None,
    names: bool,
) -> tuple[str, ...]:
    """Return sentences about work that waits because no daemon has a valid lease."""
    found = []
    if _types_with_due_work((), time, shut, type):
        found.append("Work is due, and no daemon is alive.")
    schedules = Schedule.objects.using(settings.DATABASE).filter(due_at__lte=time)
    if (schedules.filter(type__identifier=type) if type else schedules).exists():
        found.append("Slots of schedules are due, and no daemon is alive.")
    tasks = Task.objects.using(settings.DATABASE).claimed()
    tasks = tasks.filter(type__identifier=type) if type else tasks
    held = tasks.values_list("daemon__uuid", flat=True)
    holders = set(held.distinct())
    for daemon in lost:
        if daemon["uuid"] in holders:
            name = _daemon_name(f"{daemon['host']}:{daemon['pid']}", names)
            found.append(
                f"{name} was lost while it held Tasks, and no daemon is alive to rescue them."
            )
    return tuple(found)


def _types_with_due_work(
    served: Collection[str], time: datetime, shut: Iterable[Gate], type: str | None
) -> list[str]:
    """Return the identifiers of Types with due work that no gate holds back, except ``served``."""
    due = Task.objects.using(settings.DATABASE).due(time).filter(type=OuterRef("pk"))
    types = Type.objects.using(settings.DATABASE).exclude(identifier__in=served)
    types = types.filter(identifier=type) if type else types
    held, lanes = set(), defaultdict(list)
    for gate in shut:
        # A shut gate holds its work on purpose: that is not a problem.
        if gate.type_id is None:
            return []
        if gate.collection is None:
            held.add(gate.type_id)
        else:
            lanes[gate.type_id].append(gate.collection)
    types = types.exclude(pk__in=held)
    for type_id, collections in lanes.items():
        due = due.exclude(type=type_id, collection__in=collections)
    # One index look-up for each Type is faster than reading all due Tasks.
    first = due.order_by(*LANES_ORDER).values("pk")[:1]
    waiting = types.annotate(first=Subquery(first)).filter(first__isnull=False)
    return list(waiting.values_list("identifier", flat=True))


# Notes for operators: due Tasks that wait because of a gate or a limit, and who set it.


def notes(now: datetime, shut: Sequence[Gate] | None = None) -> tuple[str, ...]:
    """Return sentences about the due Tasks that wait because of gates and limits.

    ``shut`` are the shut gates, if the caller has read them. It takes as long with a million
    waiting Tasks as with a few thousand.
    """
    shut = gates(now=now) if shut is None else shut
    found = [f"{sentences.shut(gate)}: {_describe_due(gate, now)}." for gate in shut[:SHOWN]]
    if len(shut) > SHOWN:
        found.append(f"{len(shut) - SHOWN} more gates are shut.")
    return (*found, *limited_notes(now, shut))


def limited_notes(now: datetime, shut: Sequence[Gate]) -> tuple[str, ...]:
    """Return sentences about due Tasks that wait only because of a limit; see :func:`notes`."""
    found = []
    binding = [row for row in limits() if _limits_starts(row) and not _is_shut(row, shut)]
    keys = [row.pk for row in binding[:SHOWN]]
    for limit in limits_with_counts(Q(pk__in=keys)) if keys else ():
        full = check_full(limit, now)
        if full is not None and (due := _describe_due(limit, now)) != NOTHING:
            found.append(f"{sentences.full(full)}: {due}.")
    if len(binding) > SHOWN:
        found.append(f"{len(binding) - SHOWN} more limits are set, but were not checked here.")
    return tuple(found)


def control_notes() -> dict[str, list[str]]:
    """Return a few words about each gate and limit, by the identifier of the Type.

    Gates come before limits, and those for a whole Type before those for its lanes. The gate that
    covers everything is left out.
    """
    found = defaultdict(list)
    for gate in sorted(gates(), key=_lane_order):
        if gate.type is not None:
            found[gate.type.identifier].append(_with_lane(gate, text.MODES[gate.mode]))
    for limit in sorted(limits(), key=_lane_order):
        found[limit.type.identifier].append(_with_lane(limit, text.describe_limits(limit)))
    return found


def _lane_order(row: Any) -> str:
    """Return a sort key that puts whole Types before lanes."""
    return row.subject if row.collection is not None else ""


def _with_lane(row: Any, words: str) -> str:
    return words if row.collection is None else f"{row.collection!r} {words}"


def _is_shut(limit: Limit, shut: Sequence[Gate]) -> bool:
    """Return True if a shut gate covers the whole target of a Limit."""
    return any(
        gate.type_id in (None, limit.type_id) and gate.collection in (None, limit.collection)
        for gate in shut
    )


def _limits_starts(limit: Limit) -> bool:
    values = limit.max_running, limit.per_second, limit.max_running_per_collection
    return any(value is not None for value in values)


def _describe_due(row: Any, now: datetime) -> str:
    count = _select_tasks(row).due(now).order_by()[: MOST + 1].count()
    if not count:
        return NOTHING
    number = f"more than {MOST}" if count > MOST else count
    return f"{number} waiting Task{'' if count == 1 else 's'} {_are(count)} due"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _select_tasks(row: Any) -> TaskQuerySet[Task]:
    """Select the Tasks that a Gate or a Limit covers."""
    tasks = Task.objects.using(settings.DATABASE)
    if row.type_id is None:
        return tasks
    tasks = tasks.filter(type=row.type_id)
    return tasks if row.collection is None else tasks.filter(collection=row.collection)
