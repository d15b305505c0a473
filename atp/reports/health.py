"""The health of the queue: its problems, each with its severity, since when, and what helps.

A *failing* problem stops work that should run. A *warning* needs a look. A *note* tells what
somebody has set on purpose: gates, and limits that delay due Tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db import Error
from django.db.models import F, Max, Min, OuterRef, Q, Subquery, Sum

from .. import commands, text
from ..commands import Mode
from ..conf import settings
from ..downstreams.protection import State as Protection
from ..models import (
    ALL_TYPES,
    Daemon,
    Downstream,
    ErrorGroup,
    Gate,
    Instance,
    Kind,
    Limit,
    LogRecord,
    Schedule,
    Slot,
    Span,
    Statistic,
    Tailer,
    Task,
    Type,
    failure_column,
)
from ..operations import base, daemons
from ..operations.gates import gates, limits
from ..operations.table import DOWNSTREAM, INSTANCE, SCHEDULE, TARGET
from ..querysets import LANES_ORDER, TaskQuerySet
from ..schedules.models import Outcome
from ..states import Event, Reason, State
from ..store import get_store
from ..store.facts import Finding, OpenTransaction, Trouble
from . import documents, overview, releases, statistics
from .documents import Document
from .explaining import causes, sentences
from .explaining.facts import Help
from .explaining.gathering import check_full, limits_with_counts

OK, FAILING = "ok", "failing"
# A transaction that others wait for is a problem after it has been open for this many seconds.
BLOCKING = 10.0
# A tailer's lost records and a schedule's missed slots are problems for this long.
LATELY = timedelta(days=1)
# A lost daemon is a problem for this long, unless another one has started on its host.
LOST_FOR = timedelta(hours=1)
# The longest error of a tailer or a downstream in a problem, in characters.
MAX_ERROR = 500
# At most this many Tasks are counted for a problem, and this many gates and limits are listed.
MOST, SHOWN = 1000, 20
NOTHING = "no waiting Task is due"
NO_DAEMON = "no daemon serves it"
# An attempt is slow if it has run for this many times its Type's p99, of at least this many runs
# within a day. Attempts below SLOW_FROM are not checked, and at most MOST_SLOW Types are.
SLOW_TIMES, SLOW_RUNS, SLOW_FROM, MOST_SLOW = 2, 30, timedelta(seconds=10), 5
# A Type fails more than usual if at least this many attempts have failed within these minutes, at
# this many times the rate of the day.
RISING_FAILURES, RISING_FOR, RISING_TIMES = 5, timedelta(minutes=5), 3
# Failures began after the last gap that was longer, and have ended if there was none for so long.
RISING_GAP = timedelta(minutes=2)
# More due Tasks of a Type than MOST are a backlog if they take this long at the present rate. At
# most so many Types are checked: those with the most due Tasks.
BACKLOG, MOST_BACKLOGS = timedelta(minutes=3), 3
# The newest error is told with its collections, if its newest Instances have only a few of them.
NEWEST, FEW = 200, 3
# A Reset after which a downstream is in trouble again this soon has not helped.
RESET_FAILED = timedelta(minutes=5)
# The error that has opened a downstream is searched for among this many Tasks.
MOST_CALLS = 200


class Severity(StrEnum):
    """How bad a problem is; the worst comes first."""

    FAILING = "failing"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class QueueProblem:
    """A problem of the queue, with a ``sentence`` for people and a ``code`` for programs.

    ``since`` is when it began, or None if unknown. ``types`` contains the identifiers of the Types
    that it affects, and ``collection`` the lane of the only Type. ``due`` is the number of due
    Tasks that it delays, or None if they were not counted; ``due_more`` is True if there are more.
    ``kind`` and ``name`` identify the subject, such as ("daemon", its uuid); both are "" if the
    problem has no single subject. ``daemon`` is the name of a daemon in the sentence, or "".
    ``error`` is the newest error line, which may quote inputs, or "". ``helps`` is the action that
    would resolve the problem, or None.
    """

    code: str
    severity: Severity
    sentence: str
    since: datetime | None = None
    types: tuple[str, ...] = ()
    collection: str | None = None
    due: int | None = None
    due_more: bool = False
    kind: str = ""
    name: str = ""
    daemon: str = ""
    error: str = ""
    helps: Help | None = None

    def without_daemon(self) -> QueueProblem:
        """Return the problem without the name of a daemon, for users who may not see daemons.

        An error of a daemon's own is left out, too: it may name hosts.
        """
        if not self.daemon:
            return self
        sentence = self.sentence.replace(f"Daemon {self.daemon}", "A daemon")
        return replace(self, sentence=sentence, daemon="", kind="", name="", error="")


def document(problem: QueueProblem) -> Document:
    """Return a problem as plain values by name."""
    return asdict(problem) | {"severity": problem.severity.value, "types": list(problem.types)}


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of the queue at ``time``, by the database's clock.

    ``database`` is True if the database answers and has been migrated; otherwise the other fields
    except ``problems`` keep their defaults. ``daemons`` has the numbers of daemons that are alive,
    late and lost. ``problems`` contains sentences about the failing problems, and is empty if the
    queue is healthy.
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
        problems=tuple(each.sentence for each in problems(daemons, time, type=type)),
    )


def problems_now(
    found: overview.Overview, daemons: Sequence[Daemon], *, shut: Sequence[Gate] | None = None
) -> list[QueueProblem]:
    """Return all problems, warnings and notes of the queue, the worst first.

    ``found`` is the Overview at the same time; its counts say how many Tasks of a Type are due, and
    since when. ``daemons`` are the Daemon rows, and ``shut`` the shut gates, if they were read.
    """
    time = found.time
    shut = gates(now=time) if shut is None else shut
    every = (
        *problems(daemons, time, shut),
        *warnings(daemons, time, shut),
        *_find_backlogs(found),
        *notes(time, shut),
    )
    counts = {each.type: each for each in found.types}
    return [_with_counts(each, counts) for each in every]


def _with_counts(problem: QueueProblem, counts: Mapping[str, overview.LiveCounts]) -> QueueProblem:
    """Return a problem with the number of due Tasks of its Types, and since when, if unknown."""
    if not problem.types or problem.collection is not None or problem.due is not None:
        return problem
    own = [counts[type] for type in problem.types if type in counts]
    oldest = [each.oldest_due for each in own if each.oldest_due is not None]
    since = min(oldest, default=None) if problem.code == "unserved" else problem.since
    return replace(problem, due=sum(each.due for each in own), since=since)


# Failing problems: work that should run does not.


def problems(
    daemons: Iterable[Daemon],
    time: datetime,
    shut: Iterable[Gate] | None = None,
    type: str | None = None,
) -> tuple[QueueProblem, ...]:
    """Return all failing problems of the queue.

    ``daemons`` are the Daemon rows as read at ``time``. ``shut`` are the shut gates, if the caller
    has read them. With the identifier of a ``type``, only the work of this Type is checked.
    """
    shut = gates(now=time) if shut is None else shut
    return (
        # The first may be the cause of all others.
        *_find_blocking_transactions(time),
        *_find_unattended_work(daemons, time, shut, type),
        *_find_engine_problems(daemons, time, shut, type),
        *_find_refused_inputs(daemons, time, type),
        *_find_tailer_problems(time, type),
        *_find_inconsistencies(time, type),
        *_find_failing_downstreams(time, type),
    )


def _failing(code: str, sentence: str, **more: Any) -> QueueProblem:
    return QueueProblem(code=code, severity=Severity.FAILING, sentence=sentence, **more)


def _find_unattended_work(
    daemons: Iterable[Daemon], time: datetime, shut: Iterable[Gate], type: str | None
) -> Iterator[QueueProblem]:
    """Yield a problem for each Type with due work that no daemon claims."""
    every = [documents.daemon(row, time) for row in daemons]
    living = [daemon for daemon in every if daemon["condition"] != overview.LOST]
    if not living:
        yield from _find_abandoned_work(every, time, shut, type)
        return
    modes = _modes_by_type(living)
    served = {identifier for identifier, found in modes.items() if Mode.RUNNING in found}
    running = sorted({daemon["release"] for daemon in living if daemon["release"]})
    for waiting in _types_with_due_work(served, time, shut, type):
        identifier = waiting.identifier
        modes_of = modes.get(identifier)
        why = causes.nowhere(waiting, living) or _why_unserved(modes_of, running)
        yield _failing(
            "unserved",
            f"Work of Type {identifier!r} is due, and {why}.",
            types=(identifier,),
            kind="type",
            name=identifier,
            helps=causes.daemon_help()
            if identifier in modes
            else causes.operation_help(
                TARGET,
                "hold",
                type=identifier,
                label="Hold it, and open it once a daemon serves it",
            ),
        )


def _find_engine_problems(
    daemons: Iterable[Daemon], time: datetime, shut: Iterable[Gate], type: str | None
) -> Iterator[QueueProblem]:
    """Yield a problem for each engine that is away, or that cannot run work which is due.

    The address of an engine is in the ``error`` of a problem alone: not everybody may see it.
    """
    documented = [(row, documents.daemon(row, time)) for row in daemons]
    engines = [
        (row, document)
        for row, document in documented
        if document["engine"]
        and document["condition"] != overview.LOST
        and row.aim is not Mode.STOPPING
        and (type is None or type in document["types"])
    ]
    if not engines:
        return
    due = {each.identifier for each in _types_with_due_work((), time, shut, type)}
    for row, document in engines:
        engine, own = document["engine"], sorted(due & set(document["types"]))
        name = engine["executor"]
        facts: dict[str, Any] = {"kind": "daemon", "name": str(row.uuid), "daemon": str(row)}
        if engine["error"]:
            yield _failing(
                "engine-away",
                f"Daemon {row} cannot reach the engine of the executor {name!r}, and claims "
                "nothing for it.",
                error=text.shorten(engine["error"], MAX_ERROR),
                **facts,
                helps=causes.engine_help(name),
            )
        elif own and not engine["hosts"]:
            yield _failing(
                "engine-lacks",
                f"Work is due, and the cluster of the executor {name!r} has no host.",
                types=tuple(own),
                **facts,
                helps=causes.engine_worker_help(name),
            )
        for identifier in own:
            if lacks := engine["lacks"].get(identifier):
                yield _failing(
                    "engine-lacks",
                    f"Work of Type {identifier!r} is due, and "
                    f"{sentences.engine_lacks(name, lacks, 'no')}",
                    types=(identifier,),
                    **facts,
                    helps=causes.engine_worker_help(name, lacks),
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


def _why_unserved(modes: Collection[Mode] | None, running: Sequence[str]) -> str:
    """Say why no daemon claims a Type; ``running`` are the releases of the living daemons."""
    if not modes:
        release = f"release{'s' if len(running) > 1 else ''} {', '.join(running)}"
        return f"no daemon serves it; the daemons run {release}" if running else NO_DAEMON
    return f"every daemon that serves it is {' or '.join(sorted(modes))}"


def _find_abandoned_work(
    lost: Iterable[Document], time: datetime, shut: Iterable[Gate], type: str | None
) -> Iterator[QueueProblem]:
    """Yield problems with work that waits because no daemon has a valid lease."""
    start = causes.daemon_help("Start a daemon")
    types = _types_with_due_work((), time, shut, type)
    if types:
        words = "Work is due, and no daemon is alive."
        yield _failing("unserved", words, types=tuple(map(str, types)), helps=start)
    schedules = Schedule.objects.using(settings.DATABASE).filter(due_at__lte=time)
    schedules = schedules.filter(type__identifier=type) if type else schedules
    if since := schedules.aggregate(first=Min("due_at"))["first"]:
        words = "Slots of schedules are due, and no daemon is alive."
        yield _failing("unplanned", words, since=since, helps=start)
    tasks = Task.objects.using(settings.DATABASE).claimed()
    tasks = tasks.filter(type__identifier=type) if type else tasks
    holders = set(tasks.values_list("daemon__uuid", flat=True).distinct())
    for daemon in lost:
        if daemon["uuid"] in holders:
            yield _failing(
                "daemon-lost",
                f"Daemon {daemon['host']}:{daemon['pid']} was lost while it held Tasks, and no "
                "daemon is alive to rescue them.",
                since=daemon["seen"],
                kind="daemon",
                name=str(daemon["uuid"]),
                daemon=f"{daemon['host']}:{daemon['pid']}",
                helps=start,
            )


def _types_with_due_work(
    served: Collection[str], time: datetime, shut: Iterable[Gate], type: str | None
) -> list[Type]:
    """Return the Types with due work that no gate holds back, except ``served``."""
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
    return list(waiting)


def _find_refused_inputs(
    daemons: Iterable[Daemon], time: datetime, type: str | None
) -> Iterator[QueueProblem]:
    for identifier, sentence in releases.describe_refused_inputs(daemons, time, type).items():
        yield _failing("misfit", sentence, types=(identifier,), kind="type", name=identifier)


def _find_tailer_problems(time: datetime, type: str | None) -> Iterator[QueueProblem]:
    """Yield problems of tailers that are paused, have lost records, or cannot read some."""
    rows = Tailer.objects.using(settings.DATABASE).filter(
        ~Q(error="") | Q(skipped__gt=0) | Q(lost_at__gt=time - LATELY)
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
            for since, sentence in _describe_tailer(row, schedule, time):
                yield _failing(
                    "tailer",
                    sentence,
                    since=since,
                    types=(row.identifier,),
                    kind="tailer",
                    name=row.identifier,
                )


def _describe_tailer(
    row: Tailer, schedule: Schedule | None, time: datetime
) -> Iterator[tuple[datetime | None, str]]:
    show = f"manage.py atp tailer show {row.identifier} shows details."
    if row.error and schedule is not None and schedule.is_paused(time):
        yield (
            schedule.paused_since,
            f"Tailer {row.identifier!r} has paused its schedule: "
            f"{text.shorten(row.error, MAX_ERROR)} "
            f"Fix the cause, then run manage.py atp schedule resume {row.identifier}.",
        )
    elif row.error and schedule is None:
        yield (
            None,
            f"The last attempt of tailer {row.identifier!r} has failed: "
            f"{text.shorten(row.error, MAX_ERROR)}",
        )
    if row.lost_at is not None and row.lost_at > time - LATELY:
        yield (
            row.lost_at,
            f"Tailer {row.identifier!r} found {text.age(row.lost_at, time)} ago that its "
            f"source had removed records before the tailer read them; {row.lost} have been lost "
            f"since it was declared. {show}",
        )
    if row.skipped:
        words = f"Tailer {row.identifier!r} cannot read {row.skipped} records of its source."
        yield None, f"{words} {show}"


_SUSPICIONS = {
    Trouble.UNCLAIMED: "Work of Type {type!r} has been due for {since} ({count} in all), and an "
    "idle daemon that serves the Type does not claim it. Restart that daemon; manage.py atp check "
    "shows details.",
    Trouble.UNSWEPT: "Daemon {daemon} was lost {since} ago, and no other daemon has rescued its "
    "Tasks. Read the logs of the other daemons; manage.py atp check rescues the Tasks.",
    Trouble.OWNERLESS: "Daemon {daemon} has no row any more, but holds Tasks. A daemon or "
    "manage.py atp check will rescue the Tasks.",
    Trouble.UNPLANNED: "Schedule {schedule!r} has been due for {since} ({count} of its Type), but "
    "no daemon has planned its slots. {why}",
}


def _find_inconsistencies(time: datetime, type: str | None) -> Iterator[QueueProblem]:
    """Yield a problem for each kind of inconsistency that indexes show, with a remedy."""
    groups: defaultdict[tuple[Trouble, str, str], list[Finding]] = defaultdict(list)
    found = daemons.suspicions(now=time)
    for finding in found if type is None else [each for each in found if each.type == type]:
        groups[finding.trouble, finding.type, finding.daemon].append(finding)
    for (trouble, identifier, daemon), findings in groups.items():
        since = min((each.since for each in findings if each.since), default=None)
        schedule = findings[0].schedule
        yield _failing(
            trouble.value,
            _SUSPICIONS[trouble].format(
                count=len(findings),
                type=identifier,
                daemon=daemon,
                schedule=schedule,
                why=findings[0].why or "Restart the daemons, and read their logs.",
                since=text.age(since or time, time),
            ),
            since=since,
            types=(identifier,) if identifier else (),
            kind="schedule" if schedule else "type" if identifier else "",
            name=schedule or identifier,
            daemon=daemon,
            helps=Help(label="Show details", command=f"{causes.MANAGE} check --dry-run"),
        )


def _find_failing_downstreams(time: datetime, type: str | None) -> Iterator[QueueProblem]:
    """Yield a problem for each downstream that fails while work that calls it is due."""
    rows = Downstream.objects.using(settings.DATABASE)
    for row in rows.filter(state__in=(Protection.OPEN, Protection.HALF_OPEN)):
        calling = _calling_types(row)
        waiting = _with_due_work(calling, time)
        if waiting and (type is None or type in waiting):
            yield _downstream_problem(row, calling, Severity.FAILING, time)


def _calling_types(row: Downstream) -> list[str]:
    types = Type.objects.using(settings.DATABASE).filter(downstream=row.name)
    return list(types.order_by("identifier").values_list("identifier", flat=True))


def _with_due_work(types: Collection[str], time: datetime) -> list[str]:
    """Return those of the Types that have due Tasks, by one index look-up for each."""
    due = Task.objects.using(settings.DATABASE).due(time).filter(type=OuterRef("pk"))
    first = due.order_by(*LANES_ORDER).values("pk")[:1]
    rows = Type.objects.using(settings.DATABASE).filter(identifier__in=types)
    waiting = rows.annotate(first=Subquery(first)).filter(first__isnull=False)
    return list(waiting.values_list("identifier", flat=True))


def _downstream_problem(
    row: Downstream, calling: Sequence[str], severity: Severity, time: datetime
) -> QueueProblem:
    since = _troubled_since(row)
    label = ""
    if row.state == Protection.THROTTLED:
        words = f"Downstream {row.name!r} refuses calls: ATP calls it {row.per_second:.3g} times "
        words += "a second at most."
    else:
        due = ", and work that calls it is due" if severity is Severity.FAILING else ""
        words = f"Downstream {row.name!r} has failed for {text.age(since, time)}{due}. ATP tries "
        words += "it with one call at a time, and starts the others when one has succeeded."
        label = "Reset, once it answers again"
    return QueueProblem(
        code="downstream",
        severity=severity,
        sentence=words,
        since=since,
        types=tuple(calling),
        kind="downstream",
        name=row.name,
        error=_error_of_calls(calling),
        helps=causes.operation_help(DOWNSTREAM, "reset", row.name, label=label),
    )


def _troubled_since(row: Downstream) -> datetime:
    """Return when a downstream that is not closed was closed last, by its log.

    Probes change its state again and again meanwhile, and so does a Reset that does not help.
    """
    log = LogRecord.objects.using(settings.DATABASE).about(f"downstream:{row.name}")
    changes = log.filter(kind=Kind.DOWNSTREAM)
    healthy = changes.filter(detail=Protection.CLOSED).values_list("pk", flat=True).last()
    since, reset = None, None
    for time, detail in changes.filter(pk__gt=healthy or 0).values_list("time", "detail"):
        if detail == "reset":
            reset = time
        elif detail in set(Protection):
            if since is None or (reset is not None and time - reset > RESET_FAILED):
                since = time
            reset = None
    return since or row.since


def _error_of_calls(calling: Sequence[str]) -> str:
    """Return the newest error with which a waiting Task of these Types was deferred, or ""."""
    tasks = Task.objects.using(settings.DATABASE).filter(type__identifier__in=calling)
    sample = tasks.order_by(*LANES_ORDER).values("pk")[:MOST_CALLS]
    records = LogRecord.objects.using(settings.DATABASE).filter(kind=Event.DEFER)
    newest = records.filter(instance__in=list(sample.values_list("pk", flat=True)))
    found = newest.order_by("-pk").values_list("message", flat=True).first()
    return text.shorten(text.headline(found), MAX_ERROR) if found else ""


def _find_blocking_transactions(time: datetime) -> Iterator[QueueProblem]:
    """Yield a problem for each long open transaction that delays other sessions or daemons.

    Daemons do not wait for the lock of a table; they try again later.
    """
    for each in _blocking_transactions(BLOCKING):
        yield _failing(
            "transaction",
            f"{sentences.transaction(each, time)} "
            f"To end it: {causes.terminate_help(each.pid).command}",
            since=each.since,
            kind="session",
            name=str(each.pid),
            helps=causes.operation_help(TARGET, "end-session", pid=each.pid),
        )


def _blocking_transactions(longer: float) -> list[OpenTransaction]:
    _, found = get_store().open_transactions(longer, locking=longer)
    return [each for each in found if each.waits_for_it or each.locked]


def blocking_sessions(time: datetime) -> list[str]:
    """Return a sentence about each session that delays other sessions or daemons at ``time``."""
    return [sentences.transaction(each, time) for each in _blocking_transactions(0)]


# Warnings: something has happened that somebody should look at.


def warnings(
    daemons: Sequence[Daemon], time: datetime, shut: Sequence[Gate] | None = None
) -> tuple[QueueProblem, ...]:
    """Return all warnings about the queue.

    ``daemons`` are the Daemon rows as read at ``time``. ``shut`` are the shut gates, if the caller
    has read them.
    """
    shut = gates(now=time) if shut is None else shut
    return (
        *_find_missing_daemons(daemons, time),
        *_find_quiet_types(daemons, time),
        *_find_rising_failures(time, shut),
        *_find_slow_attempts(daemons, time),
        *_find_missed_slots(time),
        *_find_other_downstreams(time),
    )


def _warning(code: str, sentence: str, **more: Any) -> QueueProblem:
    return QueueProblem(code=code, severity=Severity.WARNING, sentence=sentence, **more)


def _find_missing_daemons(daemons: Sequence[Daemon], time: datetime) -> Iterator[QueueProblem]:
    """Yield a warning for each daemon that is late, or was lost within LOST_FOR.

    A lost daemon is not missed if another one has started on its host since.
    """
    conditions = {row: overview.condition(row, time) for row in daemons}
    living = [row for row, condition in conditions.items() if condition != overview.LOST]
    lost = {(row.host, str(row), row.uuid): row.seen for row in daemons if row not in living}
    for left in overview.departed_daemons(since=time - LOST_FOR):
        if left.was_lost:
            lost[left.name.rpartition(":")[0], left.name, left.uuid] = left.seen
    missed = {
        (name, uuid): since
        for (host, name, uuid), since in lost.items()
        if not any(row.host == host and row.started >= since for row in living)
    }
    for (name, uuid), since in missed.items():
        share = f"{len(missed)} of {len(missed) + len(living)} daemons"
        is_or_are = "is" if len(missed) == 1 else "are"
        yield _warning(
            "daemon-lost",
            f"Daemon {name} was lost {text.ago(since, time)}, and no daemon has started on its "
            f"host since: {share} {is_or_are} missing.",
            since=since,
            kind="daemon",
            name=str(uuid),
            daemon=name,
            helps=causes.daemon_help("Start a daemon on that host"),
        )
    for row in living:
        if conditions[row] == overview.LATE:
            yield _warning(
                "daemon-late",
                f"Daemon {row} has not renewed its lease for {text.age(row.seen, time)}.",
                since=row.seen,
                kind="daemon",
                name=str(row.uuid),
                daemon=str(row),
            )


def _find_quiet_types(daemons: Iterable[Daemon], time: datetime) -> Iterator[QueueProblem]:
    """Yield a warning if quiet daemons serve Types that no other daemon claims."""
    types = quiet_types(daemons, time)
    if types:
        names = ", ".join(types[:3])
        if len(types) > 3:
            more = len(types) - 3
            names += f" and {more} more Type{'' if more == 1 else 's'}"
        yield _warning(
            "quiet",
            f"No daemon claims {names}: an operator told each daemon that serves "
            f"{'it' if len(types) == 1 else 'them'} to go quiet or to stop.",
            types=tuple(types),
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


@dataclass(kw_only=True)
class _Troubled:
    """How many attempts of a Type have ended badly within RISING_FOR.

    ``failed`` and ``lost`` are the numbers; ``usual`` is the average of both within the day.
    ``since`` is the minute in which they began to end badly, and ``last`` the newest such minute.
    """

    failed: int = 0
    lost: int = 0
    usual: float = 0.0
    since: datetime
    last: datetime

    @property
    def count(self) -> int:
        return self.failed + self.lost


def _find_rising_failures(time: datetime, shut: Sequence[Gate]) -> Iterator[QueueProblem]:
    """Yield a warning for each Type that fails far more often now than within the day.

    A gate that was shut after the last failure has stopped them, and has a note of its own.
    """
    for type, found in sorted(_find_troubled(time).items()):
        words = f"within {text.duration(RISING_FOR)}; the average of the day is {found.usual:.2g}."
        describe = _describe_lost if found.lost > found.failed else _describe_failed
        problem = describe(type, found, words, time)
        holding = [gate for gate in shut if _covers(gate, type, problem.collection)]
        if not holding:
            yield problem
        elif found.last > min(gate.since for gate in holding):
            yield replace(problem, helps=None)


def _find_troubled(time: datetime) -> dict[str, _Troubled]:
    """Return the Types of which more attempts end badly than within the day, by identifier."""
    failed = ("retried", failure_column(Reason.ERROR), failure_column(Reason.FATAL))
    rows = Statistic.objects.using(settings.DATABASE).exclude(type=ALL_TYPES)
    rows = (
        rows.filter(span=Span.MINUTE)
        .order_by()
        .alias(bad=sum((F(name) for name in failed), start=F("lost")))
    )
    lately = rows.filter(start__gt=time - RISING_FOR - timedelta(minutes=1))
    counted = lately.values("type").annotate(number=Sum("bad")).filter(number__gte=RISING_FAILURES)
    candidates = list(counted.values_list("type", flat=True))
    found: dict[str, _Troubled] = {}
    if not candidates:
        return found
    of_day = rows.filter(start__gt=time - LATELY, type__in=candidates)
    minutes = (
        of_day.filter(bad__gt=0)
        .values("type", "start")
        .annotate(
            failed=sum((Sum(name) for name in failed[1:]), start=Sum(failed[0])), lost=Sum("lost")
        )
    )
    totals: Counter[str] = Counter()
    begin = time - RISING_FOR - timedelta(minutes=1)
    # The newest minute comes first, so a Type is troubled since the last one without a gap.
    for row in minutes.order_by("type", "-start"):
        type, start = row["type"], row["start"]
        totals[type] += row["failed"] + row["lost"]
        each = found.setdefault(type, _Troubled(since=start, last=start))
        if each.since - start <= RISING_GAP:
            each.since = start
        if start > begin:
            each.failed += row["failed"]
            each.lost += row["lost"]
    started = of_day.values("type").annotate(
        day=Sum("started"), now=Sum("started", filter=Q(start__gt=begin), default=0)
    )
    starts = {row["type"]: (row["now"], row["day"]) for row in started}
    for type, each in found.items():
        each.usual = totals[type] * (RISING_FOR / LATELY)
    return {
        type: each
        for type, each in found.items()
        if each.count >= RISING_TIMES * each.usual
        and _fails_more_often(each.count, totals[type], *starts[type])
        and time - each.last < RISING_GAP + timedelta(minutes=1)
    }


def _fails_more_often(bad: int, bad_of_day: int, started: int, started_of_day: int) -> bool:
    """Return True unless attempts end badly as often as ever, and there are only more of them.

    They are compared with those of the rest of the day.
    """
    others, bad_others = started_of_day - started, bad_of_day - bad
    usual = bad_others / max(others, bad_others, 1)
    return bad / max(started, bad) >= min(RISING_TIMES * usual, 0.5)


def _describe_failed(type: str, found: _Troubled, words: str, time: datetime) -> QueueProblem:
    """Return the warning about a Type of which attempts failed, with the newest error."""
    newest, lanes = _newest_error(type, time)
    since = found.since
    if newest is not None and newest.first_seen > since:
        since = newest.first_seen
    return _warning(
        "failures",
        f"{found.count:,} attempts of {type} failed {words}{_describe_lanes(lanes)}",
        since=since,
        error=text.shorten(newest.title, MAX_ERROR) if newest else "",
        types=(type,),
        collection=lanes[0] if len(lanes) == 1 else None,
        kind="errors",
        name=type,
        helps=_hold_help(type, lanes),
    )


def _describe_lost(type: str, found: _Troubled, words: str, time: datetime) -> QueueProblem:
    """Return the warning about a Type of which attempts were lost, with why and in which lanes."""
    instances = Instance.objects.using(settings.DATABASE).filter(type__identifier=type)
    tasks = Task.objects.using(settings.DATABASE).filter(type__identifier=type, attempt__gt=0)
    keys = list(tasks.order_by("-pk").values_list("pk", flat=True)[:NEWEST])
    for reason in (Reason.STALE, Reason.CANCELLED):
        given_up = instances.selected(state=State.FAILED, reason=reason).newest_first()
        keys += given_up.values_list("pk", flat=True)[:NEWEST]
    records = LogRecord.objects.using(settings.DATABASE).filter(
        instance__in=keys, kind=Event.EXPIRE, time__gt=time - RISING_FOR
    )
    lost = records.order_by("-pk").values_list("message", "instance_id", "instance__collection")
    newest = list(lost[:NEWEST])
    lanes = list(dict.fromkeys(collection for _, _, collection in newest))
    number = len({instance for _, instance, _ in newest})
    least = "at least " if len(newest) == NEWEST else ""
    of = f" They are of {least}{number} Instance{'s' if number > 1 else ''}." if newest else ""
    return _warning(
        "lost",
        f"{found.lost:,} attempts of {type} were lost {words}{of}{_describe_lanes(lanes)}",
        since=found.since,
        error=text.shorten(text.headline(newest[0][0]), MAX_ERROR) if newest else "",
        types=(type,),
        collection=lanes[0] if len(lanes) == 1 else None,
        kind="type",
        name=type,
        helps=_hold_help(type, lanes),
    )


def _describe_lanes(lanes: Sequence[str]) -> str:
    """Return a sentence with the collections of failures, or "" if there are none, or many."""
    names = ", ".join(f"“{name}”" if name else "none" for name in lanes)
    plural = "s" if len(lanes) > 1 else ""
    return f" Collection{plural}: {names}." if 0 < len(lanes) <= FEW else ""


def _hold_help(type: str, lanes: Sequence[str]) -> Help:
    """Return a Help that holds the only lane, or the Type if there are more."""
    lane = lanes[0] if len(lanes) == 1 else None
    label = "Hold the Type" if lane is None else "Hold this lane"
    return causes.operation_help(TARGET, "hold", type=type, collection=lane, label=label)


def _newest_error(type: str, time: datetime) -> tuple[ErrorGroup | None, list[str]]:
    """Return the most frequent of the newest error groups, and the collections of its Instances.

    The group is None if there was none within RISING_FOR. Only the newest FAILED Instances count.
    If there are none yet, because all are tried again, it is the newest group.
    """
    since = time - RISING_FOR
    groups = ErrorGroup.objects.using(settings.DATABASE).filter(type=type, last_seen__gt=since)
    found: list[tuple[int, ErrorGroup, list[str]]] = []
    for group in groups.order_by("-last_seen", "-pk")[:FEW]:
        failed = Instance.objects.using(settings.DATABASE).filter(error=group).order_by("-pk")
        newest = failed.values_list("finished", "collection")[:NEWEST]
        lanes = [lane for finished, lane in newest if finished is not None and finished > since]
        found.append((len(lanes), group, list(dict.fromkeys(lanes))))
    _, group_or_none, lanes = max(found, key=lambda each: each[0], default=(0, None, []))
    return group_or_none, lanes


def _find_slow_attempts(daemons: Iterable[Daemon], time: datetime) -> Iterator[QueueProblem]:
    """Yield a warning for each attempt that runs for much longer than its Type's p99."""
    running: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for row in daemons:
        for worker in documents.daemon(row, time)["workers"]:
            since = documents.time_or_none(worker["since"])
            if since is not None and time - since > SLOW_FROM and not worker["paused"]:
                running[str(worker["type"])].append((since, str(worker["instance"])))
    longest_first = sorted(running, key=lambda each: min(running[each]))
    for type in longest_first[:MOST_SLOW]:
        counts = statistics.histogram(type, "run", seconds=LATELY.total_seconds(), now=time)
        if sum(counts) < SLOW_RUNS:
            continue
        [p99] = statistics.quantiles_of(counts, [0.99]) or [0.0]
        slow = sorted(
            each for each in running[type] if (time - each[0]).total_seconds() > SLOW_TIMES * p99
        )
        instances = Instance.objects.using(settings.DATABASE)
        named = instances.filter(uuid__in=[uuid for _, uuid in slow])
        lanes = {str(uuid): lane for uuid, lane in named.values_list("uuid", "collection")}
        for since, uuid in slow:
            if uuid in lanes:
                yield _warning(
                    "slow",
                    f"An attempt of {type} has run for {text.age(since, time)}; 99 of 100 end "
                    f"within {text.duration(timedelta(seconds=p99))}.",
                    since=since,
                    types=(type,),
                    collection=lanes[uuid] or None,
                    kind="instance",
                    name=uuid,
                    helps=causes.operation_help(INSTANCE, "cancel", uuid),
                )


def _find_backlogs(found: overview.Overview) -> Iterator[QueueProblem]:
    """Yield a warning for each Type whose due work takes BACKLOG or longer at the present rate."""
    for counts in sorted(found.types, key=lambda each: -each.due)[:MOST_BACKLOGS]:
        rate = (
            statistics.end_rate(counts.type, seconds=60, now=found.time)
            if counts.due > MOST
            else 0.0
        )
        if not rate or counts.due < rate * BACKLOG.total_seconds():
            continue
        type = Type.objects.using(settings.DATABASE).get(identifier=counts.type)
        [lane, *_], _ = overview.lanes(type, found.time, 1)
        is_alone = lane.due > counts.due / 2
        where = f" {lane.due:,} of them are in collection “{lane.collection}”." if is_alone else ""
        takes = text.duration(timedelta(seconds=counts.due / rate))
        yield _warning(
            "backlog",
            f"{counts.due:,} Tasks of {counts.type} are due, which take {takes} at the present "
            f"rate of {60 * rate:.3g} a minute.{where}",
            since=counts.oldest_due,
            types=(counts.type,),
            collection=lane.collection if is_alone else None,
            due=lane.due if is_alone else counts.due,
            kind="limit",
            name=counts.type,
            helps=causes.operation_help(
                TARGET,
                "limit",
                type=counts.type,
                collection=lane.collection if is_alone else None,
                label="Limit this lane" if is_alone else "",
            ),
        )


def _find_missed_slots(time: datetime) -> Iterator[QueueProblem]:
    """Yield a warning for each schedule that has missed slots within LATELY."""
    slots = Slot.objects.using(settings.DATABASE).filter(
        outcome=Outcome.MISSED, at__gt=time - LATELY, schedule__retired=None
    )
    names = ("schedule__identifier", "schedule__type__identifier")
    missed = slots.order_by("schedule__identifier").values(*names)
    for row in missed.annotate(number=Sum("count"), first=Min("at"), last=Max("at")):
        number, identifier = row["number"], row["schedule__identifier"]
        yield _warning(
            "missed",
            f"Schedule {identifier!r} has missed {number} slot{'' if number == 1 else 's'} within "
            f"a day, the last one {text.ago(row['last'], time)}.",
            since=row["first"],
            types=(row["schedule__type__identifier"],),
            kind="schedule",
            name=identifier,
            helps=causes.operation_help(SCHEDULE, "backfill", identifier),
        )


def _find_other_downstreams(time: datetime) -> Iterator[QueueProblem]:
    """Yield a warning for each downstream that is not closed, but is not a failing problem."""
    rows = Downstream.objects.using(settings.DATABASE).exclude(state=Protection.CLOSED)
    for row in rows.order_by("name"):
        calling = _calling_types(row)
        if row.state == Protection.THROTTLED or not _with_due_work(calling, time):
            yield _downstream_problem(row, calling, Severity.WARNING, time)


# Notes: due Tasks that wait because of a gate or a limit, and who set it.


def notes(now: datetime, shut: Sequence[Gate] | None = None) -> tuple[QueueProblem, ...]:
    """Return notes about the due Tasks that wait because of gates and limits.

    ``shut`` are the shut gates, if the caller has read them. It takes as long with a million
    waiting Tasks as with a few thousand.
    """
    shut = gates(now=now) if shut is None else shut
    found = [
        _note("gate", gate, f"{sentences.shut(gate)}: ", now, since=gate.since)
        for gate in shut[:SHOWN]
    ]
    if len(shut) > SHOWN:
        found.append(_plain_note(f"{len(shut) - SHOWN} more gates are shut."))
    return (*found, *_limited_notes(now, shut))


def _limited_notes(now: datetime, shut: Sequence[Gate]) -> Iterator[QueueProblem]:
    """Yield notes about due Tasks that wait only because of a limit; see :func:`notes`."""
    binding = [row for row in limits() if _limits_starts(row) and not _is_shut(row, shut)]
    keys = [row.pk for row in binding[:SHOWN]]
    for limit in limits_with_counts(Q(pk__in=keys)) if keys else ():
        full = check_full(limit, now)
        if full is not None:
            who = f" (set by {limit.who})" if limit.is_set and limit.who else ""
            since = limit.since if limit.is_set else None
            note = _note("limit", limit, f"{sentences.full(full)}{who}: ", now, since=since)
            if note.due:
                yield note
    if len(binding) > SHOWN:
        yield _plain_note(f"{len(binding) - SHOWN} more limits are set, but were not checked here.")


def _note(
    code: str, row: Gate | Limit, words: str, now: datetime, since: datetime | None = None
) -> QueueProblem:
    """Return a note about a gate or a limit, with the number of due Tasks that it covers."""
    count = _select_tasks(row).due(now).order_by()[: MOST + 1].count()
    type = None if row.type is None else row.type.identifier
    return QueueProblem(
        code=code,
        severity=Severity.NOTE,
        sentence=f"{words}{_describe_due(count)}.",
        since=since,
        types=() if type is None else (type,),
        collection=row.collection,
        due=min(count, MOST),
        due_more=count > MOST,
        kind=code,
        name=type or "",
        helps=causes.target_help("open" if code == "gate" else "limit", row),
    )


def _plain_note(words: str) -> QueueProblem:
    return QueueProblem(code="more", severity=Severity.NOTE, sentence=words)


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
    return any(_covers(gate, limit.type.identifier, limit.collection) for gate in shut)


def _covers(gate: Gate, type: str, collection: str | None) -> bool:
    """Return True if a gate covers the whole Type, or the whole lane if a collection is given."""
    is_of_type = gate.type is None or gate.type.identifier == type
    return is_of_type and gate.collection in (None, collection)


def _limits_starts(limit: Limit) -> bool:
    values = limit.max_running, limit.per_second, limit.max_running_per_collection
    return any(value is not None for value in values)


def _describe_due(count: int) -> str:
    if not count:
        return NOTHING
    number = f"more than {MOST:,}" if count > MOST else f"{count:,}"
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
