"""Explain why an Instance, a Type or a lane does not run, and estimate when it will start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Count, Max, Q

from ...conf import settings
from ...downstreams.protection import State as Protection
from ...exceptions import UnknownInstance
from ...models import Daemon, Downstream, Instance, LogRecord, Task, Type
from ...operations.base import needs_tables
from ...operations.gates import gates
from ...operations.registry import get_type
from ...states import TERMINAL, Event
from ...text import did_you_mean
from .. import documents, overview, releases
from . import gathering, sentences
from .causes import OPEN, find_reasons
from .facts import MOST_COUNTED, Estimate, Explanation, Facts, Flow, QueuePosition, Reason
from .gathering import covers

if TYPE_CHECKING:
    from ...operations.registry import TypeLike

    Lane = tuple[TypeLike, str]


# The main cause for each row of a list, in a few words.

# The words for a cause in a list, by its code. Other causes need no words besides the state.
SHORT = {
    "cancel-asked": "asked to be cancelled",
    "holder-lost": "its daemon is lost",
    "holder-late": "its daemon is late",
    "blocks-loop": "blocks its loop",
    "loop-blocked": "its loop is blocked",
    "gate": "held by a gate",
    "blocked": "waits for nodes",
    "in-line": "waits in line",
    "not-due": "not due yet",
    "retry": "waits for a retry",
    "deferred": "deferred",
    "misfit": "fits no daemon yet",
    "max-running": "a limit is full",
    "max-running-per-collection": "its collection is full",
    "rate": "a rate is used up",
    "downstream": "its downstream is not healthy",
    "unserved": "no daemon serves it",
    "quiet": "its daemons are quiet",
    "engine-away": "its engine is away",
    "engine-lacks": "its cluster lacks what it takes",
    "engine-full": "its cluster has no free place",
    "resources": "its resources are in use",
    "workers-busy": "all workers are busy",
    "locked": "locked in the database",
    "alone": "runs alone",
    "ready": "its turn",
}


@dataclass(frozen=True)
class MainCause:
    """The main cause that delays an Instance, for a row of a list.

    ``words`` are a few words about the cause, ``sentence`` is its whole sentence, and ``code`` its
    code.
    """

    code: str
    words: str
    sentence: str


def main_causes(
    instances: Iterable[Instance], now: datetime, *, errors: bool = True, daemons: bool = True
) -> dict[int, MainCause]:
    """Return the main cause that delays each live Instance in a list, by primary key.

    A running Instance has a cause only if a cancel command was sent to it, or if its daemon is late
    or lost. If ``errors`` is False, the sentences do not contain the errors of handlers; if
    ``daemons`` is False, they do not contain the names of daemons. The function takes five queries,
    one more if there are limits for each lane, and one more if Tasks wait for a retry.
    """
    live = {row.pk: row for row in instances if row.state not in TERMINAL}
    if not live:
        return {}
    tasks = Task.objects.using(settings.DATABASE).select_related("daemon").in_bulk(list(live))
    all_daemons = releases.daemon_documents(overview.daemons(), now)
    shut = gates(now=now)
    limits = _limits_over(live.values())
    held = _held_in_lanes(limits)
    unhealthy = Downstream.objects.using(settings.DATABASE).exclude(state=Protection.CLOSED)
    downstreams = {row.name: row for row in unhealthy}
    last = _last_events(task for task in tasks.values() if task.due_at > now)
    found = {}
    for key, task in tasks.items():
        instance = live[key]
        facts = Facts(
            now=now,
            type=instance.type,
            instance=instance,
            task=task,
            daemons=all_daemons,
            last=last.get(key),
            downstream=downstreams.get(instance.type.downstream),
        )
        own = [row for row in limits if covers(row, facts)]
        for row in own:
            row.held_in_lane = held[row.type_id, task.collection]
        facts = replace(
            facts,
            gates=[gate for gate in shut if covers(gate, facts)],
            full=gathering.full_limits(own, task.collection, now),
        )
        facts = facts.redacted(errors=errors, daemons=daemons)
        brief = _brief(find_reasons(facts), facts)
        if brief is not None:
            found[key] = brief
    return found


def _brief(reasons: Iterable[Reason], facts: Facts) -> MainCause | None:
    for reason in reasons:
        if reason.code in SHORT:
            return MainCause(reason.code, SHORT[reason.code], reason.sentence)
    return MainCause("ready", SHORT["ready"], sentences.READY) if facts.is_waiting else None


def _last_events(tasks: Iterable[Task]) -> dict[int, documents.Document]:
    """Return the last event in the log of each of these Tasks, by primary key.

    For a Task that waits after an attempt, this event is a retry or a deferral.
    """
    begun = [task.pk for task in tasks if task.attempt]
    if not begun:
        return {}
    records = LogRecord.objects.using(settings.DATABASE)
    own = records.filter(instance__in=begun, kind__in=Event.values).order_by()
    last = own.values("instance").annotate(last=Max("pk")).values("last")
    rows = records.filter(pk__in=last)
    return {row.instance_id: documents.log_record(row) for row in rows if row.instance_id}


def _limits_over(instances: Iterable[Instance]) -> list[Any]:
    types = {row.type_id for row in instances}
    lanes = {row.collection for row in instances}
    of_lane = Q(collection__isnull=True) | Q(collection__in=lanes)
    return gathering.limits_with_counts(Q(type__in=types) & of_lane)


def _held_in_lanes(limits: Iterable[Any]) -> Counter[tuple[int, str]]:
    """Count the claimed Tasks in each lane of the Types that have a limit for each lane."""
    types = {row.type_id for row in limits if row.max_running_per_collection is not None}
    if not types:
        return Counter()
    daemons = Daemon.objects.using(settings.DATABASE).values("pk")
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__in=daemons, type__in=types)
    counted = tasks.order_by().values_list("type", "collection").annotate(Count("pk"))
    return Counter({(type, collection): count for type, collection, count in counted})


# The estimate of the time until the start. No database, no clock.
#
# The number of Tasks ahead is divided by the start rate of the Type. There are two rates: the rate
# of the last minutes, and the rate that the workers, the Type's share of them and its limits allow.
# The slower rate with the worst order of lanes gives ``high``, the faster rate with the best order
# gives ``low``.

# The factors for low and high: the Tasks ahead may run faster or slower than earlier ones.
QUICKER, SLOWER = 0.7, 1.6
# The minimum of ``high``, in seconds, covers the claim, the way to a worker, and the record.
LEAST_HIGH = 2.0


def estimated(facts: Facts, reasons: Sequence[Reason]) -> Estimate | None:
    """Return the :class:`Estimate` of the time until the start, or None if there will be no start.

    There will be no start if the subject does not wait, or if a gate drops it.
    """
    if not facts.is_waiting:
        return None
    for reason in reasons:
        if reason.code == "gate" and reason.facts["mode"] == "drop":
            return None
        if reason.code in OPEN and reason.until is None:
            return Estimate(why=reason.code)
    if facts.queued is None or facts.flow is None:
        return Estimate(why="no-figures")
    floor = _earliest_start(facts, reasons)
    low, likely, high = _estimate_turn(facts, facts.queued, facts.flow)
    if high is None:
        return Estimate(why="no-figures")
    found = Estimate(
        low=_as_delay(max(floor, low)),
        likely=_as_delay(max(floor, likely)),
        high=_as_delay(max(floor + LEAST_HIGH, high)),
    )
    # A count that has reached its maximum does not show how many more Tasks wait.
    if facts.queued.ahead >= MOST_COUNTED:
        return replace(found, likely=None, high=None, why="many")
    if facts.queued.beside >= MOST_COUNTED:
        return replace(found, high=None, why="many")
    return found


def _as_delay(seconds: float) -> timedelta:
    return timedelta(seconds=max(0.0, seconds))


def _earliest_start(facts: Facts, reasons: Sequence[Reason]) -> float:
    """Return the seconds until the due time, the gates and the rate limits allow a start."""
    times = [reason.until for reason in reasons if reason.until is not None]
    if facts.task is not None and not facts.is_blocked:
        times.append(facts.task.due_at)
    return max([0.0, *((at - facts.now).total_seconds() for at in times)])


def _estimate_turn(
    facts: Facts, queued: QueuePosition, flow: Flow
) -> tuple[float, float, float | None]:
    """Return the low, likely and high estimates of the seconds until the Task's turn.

    The high estimate is None if no start rate is known.
    """
    others = min(queued.beside, queued.ahead + 1)
    counts = queued.ahead, queued.ahead + others, queued.ahead + queued.beside
    if not counts[2] and not facts.is_busy and not _is_full(facts):
        return 0.0, min(0.1, settings.POLL_EVERY), settings.POLL_EVERY + LEAST_HIGH
    most = _allowed_rate(facts)
    found = flow.rate, _capacity(facts, queued, flow)
    rates = [min(rate, most) for rate in found if rate > 0]
    if not rates:
        return 0.0, 0.0, None
    free = _wait_for_worker(facts, flow)
    alone = _capacity(facts, queued, flow, share=1.0)
    quick, slow = min(most, max(*rates, alone)), min(rates)
    lane = _time_of_lane(facts, queued, flow)
    return (
        QUICKER * max(counts[0] / quick, lane),
        max((counts[1] + 0.5) / rates[0] + (0.0 if counts[1] else free / 2), lane),
        SLOWER * max((counts[2] + 1) / slow, lane) + free,
    )


def _capacity(facts: Facts, queued: QueuePosition, flow: Flow, share: float | None = None) -> float:
    """Return how many attempts of the Type its share of the workers can start per second.

    ``share`` is a fraction of the workers. By default it depends on the weights of the Types with
    due Tasks.
    """
    if flow.run is None or not facts.workers:
        return 0.0
    if share is None:
        share = queued.weight / (queued.weight + sum(queued.rivals.values()))
    running = [row.max_running for row in facts.limits if row.max_running is not None]
    workers = min([share * facts.workers, *running])
    return workers / max(flow.run[0], 0.001)


def _allowed_rate(facts: Facts) -> float:
    """Return how many starts per second the rate limits allow; infinity without rate limits."""
    rates = [row.per_second for row in facts.limits if row.per_second]
    return min(rates, default=float("inf"))


def _wait_for_worker(facts: Facts, flow: Flow) -> float:
    """Return the seconds until a worker is free and limits have headroom (the 95% quantile)."""
    is_to_wait = facts.is_busy or _is_full(facts)
    return flow.run[1] if is_to_wait and flow.run is not None else 0.0


def _is_full(facts: Facts) -> bool:
    """Return True if a limit is reached that allows a start only after another Task has ended."""
    return any(full.kind != "rate" for full in facts.full)


def _time_of_lane(facts: Facts, queued: QueuePosition, flow: Flow) -> float:
    """Return the minimum time for the Tasks ahead in the lane, in seconds.

    It depends on how many Tasks of the lane can run at once; without such a limit it is 0.
    """
    if facts.lane is None or flow.run is None:
        return 0.0
    own = [row.max_running for row in facts.limits if row.collection is not None]
    each = [row.max_running_per_collection for row in facts.limits if row.collection is None]
    # The lane's own limit replaces the limit for each lane.
    found = [number for number in own if number is not None] or each
    most = min((number for number in found if number is not None), default=None)
    return 0.0 if most is None else queued.ahead * flow.run[0] / max(most, 1)


# The explanation of an Instance, a Type or a lane.

FORMS = (
    "Give the uuid of an Instance, its identifier, the identifier of a Type, or a Type and a "
    "collection."
)
# A message names at most this many Instances with the same identifier.
MOST_NAMED = 10


@needs_tables
def explain(
    subject: Instance | UUID | str | TypeLike | Lane, *, errors: bool = True, daemons: bool = True
) -> Explanation:
    """Return an :class:`Explanation` of why an Instance, a Type or a lane does not run.

    ``subject`` is an Instance, its uuid or its identifier; or a Type or its identifier; or a pair
    of a Type and a collection. If ``errors`` is False, the explanation does not contain the errors
    of handlers; if ``daemons`` is False, it does not contain the names of daemons. The function
    takes at most ten queries, and is as fast with a million waiting Instances as with a few
    thousand. An unknown uuid gets an explanation, too.

    Raises UnknownInstance for any other subject, and for an identifier that Instances of several
    Types have; the message then lists these Instances. Raises UnknownType for a lane of an unknown
    Type.
    """
    facts = _facts(subject)
    return _explain_facts(facts.redacted(errors=errors, daemons=daemons))


def why(
    instance: Instance, task: Task | None, *, errors: bool = True, daemons: bool = True
) -> tuple[str, ...]:
    """Return sentences that say why an Instance does not start; () if the Instance does not wait.

    ``task`` is the Task of the Instance, or None. The other parameters are those of
    :func:`explain`. The function does not estimate the start, which saves a query.
    """
    if task is None or task.daemon_id is not None:
        return ()
    facts = gathering.gather_instance(instance.uuid, estimates=False)
    facts = facts.redacted(errors=errors, daemons=daemons)
    return tuple(reason.sentence for reason in _find_reasons(facts)) if facts.is_waiting else ()


def _explain_facts(facts: Facts) -> Explanation:
    reasons = _find_reasons(facts)
    return Explanation(
        subject=_name_subject(facts),
        state="" if facts.instance is None else facts.instance.state,
        reasons=reasons,
        ahead=facts.queued.ahead if facts.queued is not None else None,
        starts=estimated(facts, reasons),
        looked_at=facts.now,
    )


def _find_reasons(facts: Facts) -> tuple[Reason, ...]:
    found = find_reasons(facts)
    # Instances with incompatible inputs wait, but they do not hold back one that is enqueued now.
    if facts.is_waiting and all(reason.code == "misfits" for reason in found):
        ready = sentences.NEW if facts.instance is None else sentences.READY
        return (Reason(code="ready", sentence=ready), *found)
    return found


def _name_subject(facts: Facts) -> str:
    if facts.missing:
        return facts.missing
    if facts.instance is not None:
        return str(facts.instance.uuid)
    lane = "" if facts.collection is None else f"/{facts.collection}"
    return f"{facts.identifier}{lane}"


def _facts(subject: Any) -> Facts:
    if isinstance(subject, Instance):
        return gathering.gather_instance(subject.uuid)
    if isinstance(subject, UUID):
        return gathering.gather_instance(subject)
    if isinstance(subject, tuple) and len(subject) == 2 and isinstance(subject[1], str):
        return gathering.gather_type(get_type(str(subject[0])), _check_printable(subject[1]))
    if isinstance(subject, Type):
        return gathering.gather_type(subject, None)
    if isinstance(subject, str):
        return _find_by_text(subject)
    if hasattr(subject, "identifier"):  # a Type as code declares it
        return gathering.gather_type(get_type(subject.identifier), None)
    raise UnknownInstance(f"{subject!r} cannot be explained. {FORMS}")


def _find_by_text(text: str) -> Facts:
    """Gather the facts about the subject that a text names by its uuid or its identifier."""
    missing = None
    try:
        missing = gathering.gather_instance(UUID(text))
    except ValueError:
        pass
    else:
        if not missing.missing:
            return missing
    if not _check_printable(text):
        raise UnknownInstance(f"The subject is empty. {FORMS}")
    types = {row.identifier: row for row in Type.objects.using(settings.DATABASE)}
    if text in types:
        return gathering.gather_type(types[text], None)
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    # The index on identifiers begins with the Type.
    of_any = rows.filter(identifier=text, type__in=types.values())
    # An identifier may look like a uuid.
    if missing is not None and not of_any.exists():
        return missing
    instance = _choose_only(text, of_any.order_by("pk")[: MOST_NAMED + 1], types)
    return gathering.gather_instance(instance.uuid)


def _check_printable(text: str) -> str:
    """Return the text if all characters are printable. Raises UnknownInstance otherwise."""
    if not text.isprintable():
        raise UnknownInstance(f"{text!r} contains unprintable characters. {FORMS}")
    return text


def _choose_only(text: str, found: Iterable[Instance], types: Iterable[str]) -> Instance:
    instances = list(found)
    if not instances:
        hint = did_you_mean(text, types)
        raise UnknownInstance(f"There is no Instance and no Type {text!r}.{hint} {FORMS}")
    if len(instances) > 1:
        named = ", ".join(f"{row.type.identifier} ({row.uuid})" for row in instances[:MOST_NAMED])
        raise UnknownInstance(
            f"Instances of several Types have the identifier {text!r}: {named}. Give the uuid."
        )
    return instances[0]
