"""The causes that delay an Instance, one function each, and the actions that resolve them.

The functions take :class:`.facts.Facts`. They read neither the database nor the clock.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from ... import commands, placement
from ...commands import CANCEL, PAUSE, RESUME, Mode
from ...conf import settings
from ...models import Type
from ...operations.registry import registry
from ...operations.table import DAEMON, DOWNSTREAM, GRAPH, INSTANCE, OPERATIONS, SCHEDULE, TARGET
from ...options import MAX_PRIORITY
from ...states import Event, State
from ...store.facts import OpenTransaction
from ...text import duration
from .. import documents, overview
from ..documents import Document
from . import sentences
from .facts import Facts, Help, Reason

# The actions that resolve a cause, from the table of operations.

MANAGE = "manage.py atp"
# The shell command of an operation on these kinds contains the kind, as in "atp daemon resume".
_KINDS_WITH_SUBCOMMANDS = (DAEMON, SCHEDULE, GRAPH, DOWNSTREAM)


def operation_help(
    kind: str, name: str, *arguments: object, label: str = "", **options: object
) -> Help:
    """Return a Help for an operation, with the shell command that performs the operation.

    ``kind`` is the kind of subject that the operation ``name`` acts on. ``arguments`` identify the
    subject. ``options`` are options of the shell command; an option with the value None is left
    out.
    """
    entry = OPERATIONS[kind][name]
    words = [shlex.quote(str(argument)) for argument in arguments]
    for option, value in options.items():
        if value is not None:
            words += [f"--{option.replace('_', '-')}", shlex.quote(str(value))]
    return Help(
        label=label or entry.label,
        command=" ".join([MANAGE, *_subcommand(kind, entry), *words]),
        verb=entry.name,
        permission=entry.permission,
    )


def target_help(name: str, row: Any, **options: Any) -> Help:
    """Return a Help for an operation on the target of a Gate or a Limit."""
    type = None if row.type is None else row.type.identifier
    return operation_help(TARGET, name, type=type, collection=row.collection, **options)


def daemon_help(label: str = "Start a daemon that serves it", executor: str = "") -> Help:
    """Return a Help that tells the reader to start a daemon, of an ``executor`` if given."""
    command = "manage.py atpd"
    if executor:
        command = f"manage.py atpd --executor {shlex.quote(executor)}"
    return Help(label=label, command=command)


def engine_help(executor: str) -> Help:
    """Return a Help for an engine that is away; the command shows what is known of it."""
    label = f"Start the cluster of the executor {executor!r}, or correct its ADDRESS"
    return Help(label=label, command=f"{MANAGE} daemons")


def engine_worker_help(executor: str, lacks: str = "") -> Help:
    """Return a Help for a cluster without hosts, or without a host that has what it ``lacks``."""
    which = " that has it" if lacks else ""
    label = f"Start a worker{which} in the cluster of the executor {executor!r}"
    return Help(label=label, command=f"{MANAGE} daemons")


def terminate_help(pid: int) -> Help:
    """Return a Help that tells the reader to end a PostgreSQL session."""
    return Help(
        label="End the session in the database", command=f"SELECT pg_terminate_backend({pid});"
    )


def _subcommand(kind: str, entry: Any) -> list[str]:
    """Return the words of an operation's shell subcommand, for example ``["daemon", "resume"]``."""
    if kind in _KINDS_WITH_SUBCOMMANDS:
        return [kind, entry.name]
    noun = getattr(entry, "of", "")
    if noun == "limit":
        return ["limit"]
    return [noun, entry.name] if noun else [entry.name]


# Causes that operators or code have set: gates, limits and downstreams.

_CODES = {"running": "max-running", "lane": "max-running-per-collection", "rate": "rate"}
# The option of the operation "limit" that removes a limit of this kind.
_OPTIONS = {"running": "max_running", "lane": "max_running_per_collection", "rate": "rate"}


def gate(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each shut gate that covers everything, the Type or the lane."""
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
            helps=target_help("open", row),
        )


def limit(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each limit that is reached, on running Tasks or on the start rate."""
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
            helps=target_help("limit", row, **{_OPTIONS[full.kind]: "none"}),
        )


def downstream(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the downstream that the Type calls fails, or limits the rate of calls."""
    row = facts.downstream
    if row is None or not facts.is_waiting:
        return
    yield Reason(
        code="downstream",
        sentence=sentences.downstream(row, facts.now),
        facts={"downstream": row.name, "state": row.state, "per_second": row.per_second},
        since=row.since,
        until=row.not_before,
        helps=operation_help(DOWNSTREAM, "reset", row.name),
    )


def schedule(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the schedule that enqueues the Type, such as a tailer's, is paused."""
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
        helps=operation_help(SCHEDULE, "resume", row.identifier),
    )


def _level(row: object) -> int:
    """Return 0 for a gate that covers everything, 1 for a Type's gate, 2 for a lane's gate."""
    return sum(getattr(row, name) is not None for name in ("type", "collection"))


# Causes in the Task: the nodes or Instances that it waits for, its due time, its inputs.


def blocked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task waits for nodes of its graph, or for Instances of its schedule."""
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
    """Yield a Reason if a Task is not due yet, perhaps because of a retry or a deferral."""
    if not facts.is_waiting or facts.is_blocked or facts.is_due:
        return
    task, instance, last = facts.task, facts.instance, facts.last
    assert task is not None
    assert instance is not None
    event = "" if last is None else last["kind"]
    run_now = operation_help(INSTANCE, "run-now", instance.uuid)
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
            helps=run_now,
        )
    elif event == Event.DEFER and last is not None:
        yield Reason(
            code="misfit" if facts.incompatible else "deferred",
            sentence=facts.incompatible or sentences.deferred(task.due_at, facts.now),
            facts={"message": documents.headline(last["message"])},
            since=last["time"],
            until=None if facts.incompatible and not facts.is_compatible_elsewhere else task.due_at,
            helps=daemon_help("Start a daemon whose handler takes its inputs")
            if facts.incompatible
            else run_now,
        )
    else:
        yield Reason(
            code="not-due",
            sentence=f"It is not due before {sentences.time(task.due_at)}.",
            until=task.due_at,
            helps=run_now,
        )


def incompatible_instances(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Type has Instances whose inputs no daemon accepts.

    These Instances do not delay an Instance that is enqueued now.
    """
    if facts.instance is None and facts.incompatible:
        yield Reason(
            code="misfits",
            sentence=facts.incompatible,
            helps=daemon_help("Start a daemon whose handler takes their inputs"),
        )


def incompatible_inputs(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task is due, but a daemon has refused its inputs."""
    if facts.task is not None and facts.is_waiting and facts.is_due and facts.incompatible:
        yield Reason(
            code="misfit",
            sentence=facts.incompatible,
            since=None if facts.last is None else facts.last["time"],
            helps=daemon_help("Start a daemon whose handler takes its inputs"),
        )


# Causes that never pass: the Instance does not exist, or has ended.


def no_such(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if no Instance has the uuid, because it was removed or never existed."""
    if facts.missing:
        removal = facts.removal or {}
        yield Reason(
            code="no-such",
            sentence=sentences.no_such(facts.missing, facts.removal),
            facts={"subject": removal.get("subject"), "who": removal.get("who")},
            since=removal.get("time"),
        )


def ended(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance has FINISHED or FAILED; a FAILED Instance can be redriven."""
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
        helps=operation_help(INSTANCE, "redrive", instance.uuid) if has_failed else None,
    )


# Causes while a daemon holds the Task: commands to the attempt, the daemon's condition.

# A run can be slow only in comparison with at least this many measured runs.
FEWEST_RUNS = 10


def cancel_asked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a cancel command was sent to an attempt that has not ended yet."""
    if facts.task is None or facts.task.daemon_id is None or facts.task.request != CANCEL:
        return
    since = None if facts.command is None else facts.command["time"]
    killed = None if since is None else since + facts.cancel_grace
    yield Reason(
        code="cancel-asked",
        sentence=sentences.cancel_asked(facts.command, killed),
        facts={"who": "" if facts.command is None else facts.command["who"]},
        since=since,
        until=killed,
    )


def holder_lost(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the daemon that holds the Task is lost; another will rescue the Task."""
    holder = facts.holder
    if holder is None or holder["condition"] != overview.LOST:
        return
    others = len(facts.living)
    rescued = facts.now + timedelta(seconds=settings.SWEEP_EVERY) if others else None
    yield Reason(
        code="holder-lost",
        sentence=sentences.holder_lost(holder, others),
        facts={"daemon": sentences.name(holder), "others": others},
        since=holder["lease_until"] if not holder["lock"] else holder["seen"],
        until=rescued,
        helps=None if others else daemon_help("Start a daemon, which rescues its Task"),
    )


def holder_late(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the daemon that holds the Task has not renewed its lease in time."""
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
    command, last = facts.command or {}, facts.last or {}
    if command.get("attempt") != facts.instance.attempt:
        command = {}  # the command was for an earlier attempt
    who = command["who"] if command.get("detail") == PAUSE else ""
    is_to_resume = command.get("detail") == RESUME
    yield Reason(
        code="paused",
        sentence=sentences.paused(who),
        facts={"who": who},
        since=last.get("time"),
        helps=None if is_to_resume else operation_help(INSTANCE, "resume", facts.instance.uuid),
    )


def running(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance is RUNNING. It says since when, and if the run is slow."""
    instance = facts.instance
    if instance is None or instance.state != State.RUNNING or _is_lost(facts):
        return
    began = instance.started or facts.now
    age = (facts.now - began).total_seconds()
    limit = instance.timeout or instance.type.timeout
    runs = facts.flow.runs if facts.flow is not None else 0
    p99 = facts.flow.run[2] if facts.flow is not None and facts.flow.run else None
    if facts.pause is not None and facts.pause["attempt"] == instance.attempt:
        # Neither timeouts nor the measured run times include pauses.
        p99 = limit = None
    is_slow = p99 is not None and runs >= FEWEST_RUNS and age > p99
    until = None if limit is None else began + limit
    latest = None if facts.newest is None else facts.newest["time"]
    silent = latest if latest is not None and latest > began else began
    figures = {
        "attempt": instance.attempt,
        "progress": instance.progress,
        "p99": p99,
        "runs": runs,
        "is_slow": is_slow,
        "silent_since": silent,
    }
    yield Reason(
        code="running",
        sentence=sentences.running(figures, began, until, facts.now),
        facts=figures,
        since=began,
        until=until,
        helps=_release_help(
            facts, f"Run it again, because most end within {duration(timedelta(seconds=p99))}"
        )
        if is_slow and p99 is not None
        else None,
    )


def loop_blocked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if an attempt blocks the loop in which the Instance is; it may be its own."""
    instance = facts.instance
    if instance is None or facts.holder is None or _is_lost(facts):
        return
    workers, uuid = facts.holder["workers"], str(instance.uuid)
    own = next((each for each in workers if each["instance"] == uuid), None)
    if own is None or own["loop"] is None:
        return
    beside = [each for each in workers if each["loop"] == own["loop"] and each["instance"]]
    guilty = next((each for each in beside if each["blocks"]), None)
    if guilty is None:
        return
    is_own = guilty is own
    yield Reason(
        code="blocks-loop" if is_own else "loop-blocked",
        sentence=sentences.loop_blocked(guilty, is_own=is_own, others=len(beside) - 1),
        facts={"loop": own["loop"], "others": len(beside) - 1}
        | {name: guilty[name] for name in ("instance", "type", "blocks")},
        helps=operation_help(INSTANCE, "cancel", guilty["instance"], label="Cancel what blocks it"),
    )


def claimed(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a daemon has claimed the Instance, but no worker runs it yet."""
    instance = facts.instance
    if instance is None or instance.state != State.SCHEDULED or _is_lost(facts):
        return
    since = None if facts.last is None else facts.last["time"]
    yield Reason(
        code="claimed",
        sentence=sentences.claimed(facts.holder, alone=instance.lost > 0),
        facts={"daemon": sentences.name(facts.holder)},
        since=since,
        helps=_release_help(facts, "Let another daemon take it"),
    )


def _release_help(facts: Facts, label: str) -> Help:
    assert facts.instance is not None
    return operation_help(INSTANCE, "release", facts.instance.uuid, label=label)


def _is_lost(facts: Facts) -> bool:
    return facts.holder is not None and facts.holder["condition"] == overview.LOST


# Causes in the daemons: none serves the Type, or those that serve it are quiet or busy.

# A sentence about busy workers names at most this many Types.
MOST_TYPES = 3
START_WITH = "Start a daemon on a host that has it, with --label or --capacity"
RESTART = "Start a daemon that serves it, or restart one: with --reload it restarts automatically"


def unserved(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if no living daemon serves the Type."""
    if not facts.is_waiting or facts.serving:
        return
    lost = [each for each in facts.daemons if facts.identifier in each["types"]]
    last = max(lost, key=lambda each: each["seen"]) if lost else None
    found = facts.last_claim or {}
    module = _unreached_module(facts) if facts.living and not last and not found else ""
    restart = f"Import {module} in a tasks.py, and restart the daemon" if module else RESTART
    lacking, executor = nowhere(facts.type, facts.living), executor_of(facts.type)
    restart = START_WITH if lacking else restart
    if executor:
        restart = f"Start a daemon of the executor {executor!r}"
    yield Reason(
        code="unserved",
        sentence=sentences.unserved(len(facts.living), last, facts.last_claim, module, lacking),
        facts={
            "alive": len(facts.living),
            "module": module or None,
            "lacking": lacking or None,
            "last": sentences.name(last) if last else found.get("who"),
            "release": last["release"] if last else None,
            "releases": sorted({each["release"] for each in facts.living if each["release"]}),
        },
        since=last["seen"] if last else None,
        helps=daemon_help(restart, executor) if facts.living or executor else daemon_help(),
    )


def executor_of(type: Type | None) -> str:
    """Return the name of the executor that runs the attempts of a Type, or ""."""
    return "" if type is None else (type.needs or {}).get(placement.EXECUTOR, "")


def nowhere(type: Type | None, living: Iterable[Document]) -> str:
    """Say which label or resource of the Type no living daemon has; "" if some daemon has all."""
    if type is None or not (type.needs or type.resources):
        return ""
    executor = executor_of(type)
    if not executor:
        hosts = [(each["labels"], each["capacity"]) for each in living]
        return placement.why_nowhere(type.needs or {}, type.resources or {}, hosts)
    own = [each["labels"] for each in living if each["labels"].get(placement.EXECUTOR) == executor]
    if not own:
        return f"no daemon runs the executor {executor!r}"
    # The engine has the resources.
    return placement.why_nowhere(type.needs or {}, {}, [(labels, {}) for labels in own])


def _unreached_module(facts: Facts) -> str:
    """Return the module that declares the Type if daemons do not import the module, else ""."""
    if facts.type is None or registry.is_reached(facts.identifier):
        return ""
    # The name of a nested function begins with the name of the outer one.
    return facts.type.handler.partition(".<locals>")[0].rpartition(".")[0]


def quiet(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if daemons serve the Type, but all of them are quiet or stopping."""
    if not facts.is_waiting or not facts.serving or facts.claiming:
        return
    modes = {str(commands.mode_after(each["mode"], each["request"])) for each in facts.serving}
    resumable = [
        each
        for each in facts.serving
        if commands.mode_after(each["mode"], each["request"]) is Mode.QUIET
    ]
    yield Reason(
        code="quiet",
        sentence=sentences.quiet(modes),
        facts={"daemons": [sentences.name(each) for each in facts.serving], "modes": sorted(modes)},
        helps=operation_help(DAEMON, "resume", resumable[0]["uuid"])
        if resumable
        else daemon_help(),
    )


def engine(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the engines of the Type are away, or cannot place an attempt of it now."""
    if not facts.is_waiting or facts.is_blocked or not facts.engines:
        return
    reasons = [_engine_reason(each, facts) for each in facts.engines]
    found = [each for each in reasons if each is not None]
    if len(found) == len(reasons):
        yield found[0]


def _engine_reason(known: Document, facts: Facts) -> Reason | None:
    name, lacks = known["executor"], known["lacks"].get(facts.identifier, "")
    own = {"executor": name}
    if known["error"]:
        return Reason(
            code="engine-away",
            sentence=sentences.engine_away(name, known["error"]),
            facts=own | {"error": known["error"]},
            helps=engine_help(name),
        )
    if lacks or not known["hosts"]:
        return Reason(
            code="engine-lacks",
            sentence=sentences.engine_lacks(name, lacks),
            facts=own | {"lacks": lacks or None, "hosts": known["hosts"]},
            helps=engine_worker_help(name, lacks),
        )
    if known["room"] <= len(facts.running) and known["room"] < known["places"]:
        return Reason(
            code="engine-full",
            sentence=sentences.engine_full(name, known["places"], known["room"]),
            facts=own | {"places": known["places"], "room": known["room"]},
        )
    return None


def resources_in_use(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if other attempts take the resources of all daemons that serve the Type."""
    if not facts.is_waiting or facts.is_blocked or not facts.used or facts.type is None:
        return
    wanted: dict[str, int] = facts.type.resources or {}
    capacity, used = Counter[str](), Counter[str]()
    for each in facts.claiming:
        own: Counter[str] = Counter(each["capacity"])
        if each["engine"] is not None:
            own = Counter({name: int(n) for name, n in each["engine"]["resources"].items()})
            if not wanted.keys() <= own.keys():
                return  # it does not count them, or it lacks them
        capacity += own
        used += Counter(facts.used[each["uuid"]])
        if placement.room(wanted, own - Counter(facts.used[each["uuid"]])):
            return
    yield Reason(
        code="resources",
        sentence=sentences.in_use(wanted, capacity, used),
        facts={"takes": wanted, "capacity": dict(capacity), "used": dict(used)},
        helps=daemon_help("Start a daemon on another host that has them, with --capacity"),
    )


def busy(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if all workers that could run the Task are busy."""
    if not facts.is_waiting or facts.is_blocked or not facts.is_busy:
        return
    types = Counter(worker["type"] for worker in facts.running).most_common(MOST_TYPES)
    longest = min(facts.running, key=lambda worker: str(worker["since"]))
    yield Reason(
        code="workers-busy",
        sentence=sentences.busy(facts.workers, types, longest, facts.now),
        facts={
            "workers": facts.workers,
            "types": dict(types),
            "longest": {name: longest[name] for name in ("instance", "type", "since")},
        },
        helps=daemon_help(
            "Start another daemon, or one with more "
            + ("loops" if longest["loop"] is not None else "workers")
        ),
    )


# Causes in the queue: the Tasks before it, and other obstacles to a start.


def behind(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if other Tasks start first, in the same lane or in other lanes and Types."""
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
        helps=operation_help(INSTANCE, "change", facts.instance.uuid, priority=above)
        if facts.instance is not None and found.ahead
        else None,
    )


def alone(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if earlier attempts were lost, so that the Task needs a worker for itself."""
    instance = facts.instance
    if instance is None or not instance.lost:
        return
    if instance.state in (State.ACCEPTED, State.SCHEDULED) and not facts.is_blocked:
        yield Reason(
            code="alone", sentence=sentences.alone(instance.lost), facts={"lost": instance.lost}
        )


def locked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each transaction that has locked the Task's row or a whole table."""
    if facts.is_waiting and facts.is_due and not facts.is_blocked:
        found = (each for each in facts.transactions if each.locked)
        yield from (_transaction_reason("locked", each, facts) for each in found)


def transaction(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each transaction that has been open for long and might hold locks.

    A daemon cannot claim a Task whose row is locked.
    """
    if facts.is_waiting or (facts.task is not None and facts.task.daemon_id is not None):
        found = (each for each in facts.transactions if not each.locked)
        yield from (_transaction_reason("transaction", each, facts) for each in found)


def _transaction_reason(code: str, found: OpenTransaction, facts: Facts) -> Reason:
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


# The table of causes. The cause that must be resolved first comes first.
#
# To add one: write a function in this module that takes :class:`.facts.Facts` and yields a
# :class:`.facts.Reason` whenever the cause applies. Add the facts that it needs to Facts, gather
# them in :mod:`.gathering`, and list the function here. If nobody knows when the cause ends, list
# its code in :data:`OPEN`. Its short words are in :data:`.explain.SHORT`.

Cause = Callable[[Facts], Iterator[Reason]]

CAUSES: tuple[Cause, ...] = (
    no_such,
    ended,
    cancel_asked,
    # These come before "paused" and "running", because the daemon might no longer run the attempt.
    holder_lost,
    holder_late,
    paused,
    # An attempt that does not get its turn is not slow by itself.
    loop_blocked,
    running,
    schedule,
    gate,
    blocked,
    not_due,
    incompatible_inputs,
    limit,
    downstream,
    unserved,
    quiet,
    engine,
    resources_in_use,
    busy,
    locked,
    behind,
    alone,
    claimed,
    transaction,
    incompatible_instances,
)
# Nobody knows when these causes end, unless their Reason has an ``until``.
OPEN = (
    *("schedule-paused", "gate", "blocked", "in-line", "misfit", "unserved", "quiet"),
    *("engine-away", "engine-lacks", "locked"),
)


def find_reasons(facts: Facts) -> tuple[Reason, ...]:
    """Return a Reason for each cause that applies to these facts, in the order of CAUSES."""
    return tuple(reason for cause in CAUSES for reason in cause(facts))
