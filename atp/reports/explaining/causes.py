"""The table of causes, a function each; no database, no clock. What would help."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from ... import commands
from ...commands import CANCEL, PAUSE, RESUME, Mode
from ...conf import settings
from ...operations.registry import registry
from ...operations.table import DAEMON, DOWNSTREAM, GRAPH, INSTANCE, SCHEDULE, SCOPE, VERBS
from ...options import MAX_PRIORITY
from ...states import Event, State
from ...store.values.outlooks import OpenTransaction
from ...text import duration
from .. import documents, overview
from . import sentences
from .facts import Facts, Help, Reason

# The acts that would resolve a cause, from the table of verbs: with command and permission.

MANAGE = "manage.py atp"
_OF_ITS_KIND = (DAEMON, SCHEDULE, GRAPH, DOWNSTREAM)


def verb_help(kind: str, name: str, *arguments: object, label: str = "", **options: object) -> Help:
    """Return the act for a verb of the table on a subject of this kind, with its shell command.

    ``arguments`` name the subject; an option that is None is left out.
    """
    entry = VERBS[kind][name]
    words = [shlex.quote(str(argument)) for argument in arguments]
    for option, value in options.items():
        if value is not None:
            words += [f"--{option.replace('_', '-')}", shlex.quote(str(value))]
    return Help(
        label=label or entry.label,
        command=" ".join([MANAGE, *_words(kind, entry), *words]),
        verb=entry.name,
        permission=entry.permission,
    )


def scope_help(name: str, row: Any, **options: Any) -> Help:
    """Return the act for a verb on the scope of a Gate or a Limit."""
    type = None if row.type is None else row.type.identifier
    return verb_help(SCOPE, name, type=type, collection=row.collection, **options)


def daemon_help(label: str = "Start a daemon that serves it") -> Help:
    """Return the act of starting a daemon, for which there is no verb."""
    return Help(label=label, command="manage.py atpd")


def terminate_help(pid: int) -> Help:
    """Return the act of ending a session of PostgreSQL, for which there is no verb."""
    return Help(
        label="End the session in the database", command=f"SELECT pg_terminate_backend({pid});"
    )


def _words(kind: str, entry: Any) -> list[str]:
    """Return the subcommand of a verb."""
    if kind in _OF_ITS_KIND:
        return [kind, entry.name]
    of = getattr(entry, "of", "")
    if of == "limit":
        return ["limit"]
    return [of, entry.name] if of else [entry.name]


# Causes that operators and code have set: gates, limits and downstreams.

_CODES = {"running": "max-running", "lane": "max-running-per-collection", "rate": "rate"}
# The option of the verb "limit" that removes a limit of this kind.
_OPTIONS = {"running": "max_running", "lane": "max_running_per_collection", "rate": "rate"}


def gate(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each shut gate: over everything, of the Type, or of the lane."""
    if not facts.is_waiting:
        return
    for row in sorted(facts.gates, key=_level):
        yield Reason(
            code="gate",
            sentence=f"{sentences.shut(row)}.",
            facts={
                "type": None if row.type is None else row.type.identifier,
                "collection": row.collection,
                "mode": row.mode,
                "who": row.who,
                "reason": row.reason,
            },
            since=row.since,
            until=row.until,
            helps=scope_help("open", row),
        )


def limit(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each full limit: the maximum is running, or the rate is used up."""
    if not facts.is_waiting:
        return
    for full in sorted(facts.full, key=lambda full: list(_CODES).index(full.kind)):
        row = full.limit
        yield Reason(
            code=_CODES[full.kind],
            sentence=f"{sentences.full(full, facts.lane)}.",
            facts={
                "type": row.type.identifier,
                "collection": row.collection,
                "limit": row.rate if full.kind == "rate" else getattr(row, _OPTIONS[full.kind]),
                "held": full.held,
                "is_set": row.is_set,
                "who": row.who,
            },
            until=full.at,
            helps=scope_help("limit", row, **{_OPTIONS[full.kind]: "none"}),
        )


def downstream(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the service that the Type calls fails, or accepts no more calls."""
    row = facts.downstream
    if row is None or not facts.is_waiting:
        return
    yield Reason(
        code="downstream",
        sentence=sentences.downstream(row, facts.now),
        facts={"downstream": row.name, "state": row.state, "per_second": row.per_second},
        since=row.since,
        until=row.not_before,
        helps=verb_help(DOWNSTREAM, "reset", row.name),
    )


def schedule(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the schedule that enqueues the Type, as that of a tailer, is paused."""
    row = facts.schedule
    if row is None:
        return
    by = f" by {row.paused_by}" if row.paused_by else ""
    why = f": {row.paused_reason}" if row.paused_reason else ""
    yield Reason(
        code="schedule-paused",
        sentence=f"Its schedule {row.identifier!r} is paused{by}{why}".rstrip(".") + ".",
        facts={"schedule": row.identifier, "who": row.paused_by, "reason": row.paused_reason},
        since=row.paused_since,
        until=row.paused_until,
        helps=verb_help(SCHEDULE, "resume", row.identifier),
    )


def _level(row: object) -> int:
    """Return 0 for the gate over everything, 1 for the gate of a Type, 2 for that of a lane."""
    return sum(getattr(row, name) is not None for name in ("type", "collection"))


# Causes of time and order: nodes or Instances that it waits for, its due time, its misfit.


def blocked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task waits for nodes of its graph, or in the line of its schedule."""
    if not facts.is_waiting or not facts.is_blocked or facts.task is None:
        return
    is_line = bool(facts.upstream) and facts.upstream[0]["graph"] is None
    yield Reason(
        code="in-line" if is_line else "blocked",
        sentence=sentences.blocked(facts.upstream, facts.task.waits or 0, is_line=is_line),
        facts={
            "waits": facts.task.waits,
            "upstream": [
                {name: each[name] for name in ("name", "uuid", "state")} for each in facts.upstream
            ],
        },
    )


def not_due(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task is not due yet: as enqueued, by a retry's delay, or deferred."""
    if not facts.is_waiting or facts.is_blocked or facts.is_due:
        return
    task, instance, last = facts.task, facts.instance, facts.last
    assert task is not None
    assert instance is not None
    event = "" if last is None else last["kind"]
    helped = verb_help(INSTANCE, "run-now", instance.uuid)
    if event == Event.RETRY:
        most = instance.max_retries
        most = instance.type.max_retries if most is None else most
        error = "" if last is None else documents.headline(last["message"])
        yield Reason(
            code="retry",
            sentence=sentences.retry(instance.retries, most, error, task.due_at, facts.now),
            facts={"retry": instance.retries, "of": most, "error": error},
            since=None if last is None else last["time"],
            until=task.due_at,
            helps=helped,
        )
    elif event == Event.DEFER and last is not None:
        yield Reason(
            code="misfit" if facts.misfit else "deferred",
            sentence=facts.misfit or sentences.deferred(task.due_at, facts.now),
            facts={"message": documents.headline(last["message"])},
            since=last["time"],
            until=None if facts.misfit and not facts.is_fit_elsewhere else task.due_at,
            helps=daemon_help("Start a daemon whose handler takes its inputs")
            if facts.misfit
            else helped,
        )
    else:
        yield Reason(
            code="not-due",
            sentence=f"It is not due before {sentences.time(task.due_at)}.",
            until=task.due_at,
            helps=helped,
        )


def misfits(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if Instances of a Type fit no daemon; it is none for a new one to wait."""
    if facts.instance is None and facts.misfit:
        yield Reason(
            code="misfits",
            sentence=facts.misfit,
            helps=daemon_help("Start a daemon whose handler takes their inputs"),
        )


def misfit(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task is due, but its inputs do not fit the handler of some daemon."""
    if facts.task is not None and facts.is_waiting and facts.is_due and facts.misfit:
        yield Reason(
            code="misfit",
            sentence=facts.misfit,
            since=None if facts.last is None else facts.last["time"],
            helps=daemon_help("Start a daemon whose handler takes its inputs"),
        )


# Causes that nothing resolves by itself: the Instance does not exist, or has ended.


def no_such(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if no Instance has the uuid: it was removed, or has never existed."""
    if facts.missing:
        trace = facts.trace or {}
        yield Reason(
            code="no-such",
            sentence=sentences.no_such(facts.missing, facts.trace),
            facts={"subject": trace.get("subject"), "who": trace.get("who")},
            since=trace.get("time"),
        )


def ended(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance has FINISHED or FAILED; a FAILED one can be redriven."""
    instance = facts.instance
    if instance is None or not instance.is_terminal:
        return
    has_failed = instance.state == State.FAILED
    error = documents.headline(facts.last["message"]) if has_failed and facts.last else ""
    yield Reason(
        code="ended",
        sentence=sentences.ended(instance, error),
        facts={"reason": instance.reason, "error": error},
        since=instance.finished,
        helps=verb_help(INSTANCE, "redrive", instance.uuid) if has_failed else None,
    )


# Causes while a daemon holds the Task: requests to the daemon, its condition, the attempt.

# A run is called slow only if this many others were measured.
FEWEST_RUNS = 10


def cancel_asked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the holder was asked to cancel the Instance, and has not ended it yet."""
    if facts.task is None or facts.task.daemon_id is None or facts.task.request != CANCEL:
        return
    since = None if facts.asked is None else facts.asked["time"]
    killed = None if since is None else since + facts.cancel_grace
    yield Reason(
        code="cancel-asked",
        sentence=sentences.cancel_asked(facts.asked, killed),
        facts={"who": "" if facts.asked is None else facts.asked["who"]},
        since=since,
        until=killed,
    )


def holder_lost(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the holder's lease is over: another daemon will take the Task away."""
    holder = facts.holder
    if holder is None or holder["condition"] != overview.LOST:
        return
    others = len(facts.living)
    swept = facts.now + timedelta(seconds=settings.SWEEP_EVERY) if others else None
    yield Reason(
        code="holder-lost",
        sentence=sentences.holder_lost(holder, others),
        facts={"daemon": sentences.name(holder), "others": others},
        since=holder["lease_until"] if not holder["lock"] else holder["seen"],
        until=swept,
        helps=None if others else daemon_help("Start a daemon: it takes away what is held"),
    )


def holder_late(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the holder has missed a renewal, and may soon be lost."""
    holder = facts.holder
    if holder is None or holder["condition"] != overview.LATE:
        return
    ends = None if holder["lock"] else holder["lease_until"]
    yield Reason(
        code="holder-late",
        sentence=sentences.holder_late(holder, ends),
        facts={"daemon": sentences.name(holder)},
        since=holder["seen"],
        until=ends,
    )


def paused(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance is PAUSED."""
    if facts.instance is None or facts.instance.state != State.PAUSED:
        return
    asked, last = facts.asked or {}, facts.last or {}
    if asked.get("attempt") != facts.instance.attempt:
        asked = {}  # it was about an earlier attempt
    who = asked["who"] if asked.get("detail") == PAUSE else ""
    is_to_resume = asked.get("detail") == RESUME
    yield Reason(
        code="paused",
        sentence=sentences.paused(who),
        facts={"who": who},
        since=last.get("time"),
        helps=None if is_to_resume else verb_help(INSTANCE, "resume", facts.instance.uuid),
    )


def running(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance is RUNNING; it tells if that takes long, or is silent."""
    instance = facts.instance
    if instance is None or instance.state != State.RUNNING or _is_lost(facts):
        return
    began = instance.started or facts.now
    age = (facts.now - began).total_seconds()
    limit = instance.timeout or instance.type.timeout
    runs = facts.flow.runs if facts.flow is not None else 0
    p99 = facts.flow.run[2] if facts.flow is not None and facts.flow.run else None
    if facts.pause is not None and facts.pause["attempt"] == instance.attempt:
        # The time-out does not count pauses, and neither do the run times of others.
        p99 = limit = None
    is_slow = p99 is not None and runs >= FEWEST_RUNS and age > p99
    until = None if limit is None else began + limit
    heard = None if facts.word is None else facts.word["time"]
    silent = heard if heard is not None and heard > began else began
    told = {
        "attempt": instance.attempt,
        "progress": instance.progress,
        "p99": p99,
        "runs": runs,
        "is_slow": is_slow,
        "silent_since": silent,
    }
    yield Reason(
        code="running",
        sentence=sentences.running(told, began, until, facts.now),
        facts=told,
        since=began,
        until=until,
        helps=_end(facts, f"Run it again: most end within {duration(timedelta(seconds=p99))}")
        if is_slow and p99 is not None
        else None,
    )


def claimed(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a daemon has claimed the Instance, which waits there for a worker."""
    instance = facts.instance
    if instance is None or instance.state != State.SCHEDULED or _is_lost(facts):
        return
    since = None if facts.last is None else facts.last["time"]
    yield Reason(
        code="claimed",
        sentence=sentences.claimed(facts.holder, alone=instance.lost > 0),
        facts={"daemon": sentences.name(facts.holder)},
        since=since,
        helps=_end(facts, "Let another daemon take it"),
    )


def _end(facts: Facts, label: str) -> Help:
    assert facts.instance is not None
    return verb_help(INSTANCE, "release", facts.instance.uuid, label=label)


def _is_lost(facts: Facts) -> bool:
    return facts.holder is not None and facts.holder["condition"] == overview.LOST


# Causes of the daemons: none serves the Type, those that do claim nothing, or all are busy.

# The maximum number of Types that are named as keeping workers busy.
MOST_TYPES = 3
RESTART = "Start a daemon that serves it, or restart one: with --reload it does so by itself"


def unserved(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if no living daemon serves the Type."""
    if not facts.is_waiting or facts.serving:
        return
    gone = [each for each in facts.daemons if facts.identifier in each["types"]]
    last = max(gone, key=lambda each: each["seen"]) if gone else None
    found = facts.served_last or {}
    module = _unreached_module(facts) if facts.living and not last and not found else ""
    restart = f"Import {module} in a tasks.py, and restart the daemon" if module else RESTART
    yield Reason(
        code="unserved",
        sentence=sentences.unserved(len(facts.living), last, facts.served_last, module),
        facts={
            "alive": len(facts.living),
            "module": module or None,
            "last": sentences.name(last) if last else found.get("who"),
            "release": last["release"] if last else None,
            "releases": sorted({each["release"] for each in facts.living if each["release"]}),
        },
        since=last["seen"] if last else None,
        helps=daemon_help(restart) if facts.living else daemon_help(),
    )


def _unreached_module(facts: Facts) -> str:
    """Return the module that declares the Type, if daemons with this code do not import it."""
    if facts.type is None or registry.is_reached(facts.identifier):
        return ""
    # The name of a function inside of another begins with that of the other.
    return facts.type.handler.partition(".<locals>")[0].rpartition(".")[0]


def quiet(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if all daemons that serve the Type are quiet or stopping."""
    if not facts.is_waiting or not facts.serving or facts.claiming:
        return
    aims = {str(commands.aim(each["mode"], each["request"])) for each in facts.serving}
    resumable = [
        each for each in facts.serving if commands.aim(each["mode"], each["request"]) is Mode.QUIET
    ]
    yield Reason(
        code="quiet",
        sentence=sentences.quiet(aims),
        facts={"daemons": [sentences.name(each) for each in facts.serving], "modes": sorted(aims)},
        helps=verb_help(DAEMON, "resume", resumable[0]["uuid"]) if resumable else daemon_help(),
    )


def busy(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if all workers that could run the Task are running something else."""
    if not facts.is_waiting or facts.is_blocked or not facts.is_busy:
        return
    types = Counter(worker["type"] for worker in facts.running).most_common(MOST_TYPES)
    longest = min(facts.running, key=lambda worker: str(worker["since"]))
    yield Reason(
        code="workers-busy",
        sentence=sentences.busy(facts.places, types, longest, facts.now),
        facts={
            "workers": facts.places,
            "types": dict(types),
            "longest": {name: longest[name] for name in ("instance", "type", "since")},
        },
        helps=daemon_help("Start another daemon, or one with more workers"),
    )


# Causes of the queue itself: the Tasks before it, and other obstacles to a start.


def behind(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if other Tasks of the lane come first, or other lanes and Types take turns."""
    found = facts.queued
    if not facts.is_waiting or facts.is_blocked or not facts.is_due or found is None:
        return
    takes_turns = facts.is_busy and (found.beside or found.rivals)
    if not found.ahead and not takes_turns:
        return
    task = facts.task
    above = None if task is None else min(MAX_PRIORITY, task.priority + 1)
    yield Reason(
        code="behind",
        sentence=sentences.behind(found),
        facts={
            "ahead": found.ahead,
            "by_priority": found.above,
            "other_lanes": found.beside,
            "other_types": sorted(found.rivals),
        },
        helps=verb_help(INSTANCE, "change", facts.instance.uuid, priority=above)
        if facts.instance is not None and found.ahead
        else None,
    )


def alone(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if attempts were lost before: it now needs a worker without other Tasks."""
    instance = facts.instance
    if instance is None or not instance.lost:
        return
    if instance.state in (State.ACCEPTED, State.SCHEDULED) and not facts.is_blocked:
        yield Reason(
            code="alone", sentence=sentences.alone(instance.lost), facts={"lost": instance.lost}
        )


def locked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each transaction that has locked the Task's row, or a table."""
    if facts.is_waiting and facts.is_due and not facts.is_blocked:
        yield from (_open("locked", each, facts) for each in facts.transactions if each.locked)


def transaction(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each long open transaction: no daemon can claim the rows it has locked."""
    if facts.is_waiting or (facts.task is not None and facts.task.daemon_id is not None):
        found = (each for each in facts.transactions if not each.locked)
        yield from (_open("transaction", each, facts) for each in found)


def _open(code: str, found: OpenTransaction, facts: Facts) -> Reason:
    return Reason(
        code=code,
        sentence=sentences.transaction(found, facts.now),
        facts={
            "pid": found.pid,
            "application": found.application,
            "user": found.user,
            "locked": found.locked,
            "statement_since": found.statement_since,
            "waits_for_it": found.waits_for_it,
        },
        since=found.since,
        helps=terminate_help(found.pid),
    )


# The table of causes; the one that must be removed first comes first.
#
# To add one: write a function in a module of this room that takes :class:`..facts.Facts` and
# yields a :class:`..values.Reason` for each time that it applies. Add the facts that it needs to
# Facts (gathered in :mod:`..gathering`), and list the function here. A code without a known end is
# listed in :data:`OPEN`, and gets its short words in :mod:`..brief`.

Cause = Callable[[Facts], Iterator[Reason]]

CAUSES: tuple[Cause, ...] = (
    no_such,
    ended,
    cancel_asked,
    # Before what it does: nobody does that any more, or perhaps not.
    holder_lost,
    holder_late,
    paused,
    running,
    schedule,
    gate,
    blocked,
    not_due,
    misfit,
    limit,
    downstream,
    unserved,
    quiet,
    busy,
    locked,
    behind,
    alone,
    claimed,
    transaction,
    misfits,
)
# Causes of which nobody knows when they end, unless their Reason has an ``until``.
OPEN = ("schedule-paused", "gate", "blocked", "in-line", "misfit", "unserved", "quiet", "locked")


def judged(facts: Facts) -> tuple[Reason, ...]:
    """Return all causes that apply, in the order of the table."""
    return tuple(reason for cause in CAUSES for reason in cause(facts))
