"""Redrive, cancel or delete all Instances that match: the selection, the plan, starting it."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from django.db.models import Count, Exists, OuterRef

from .. import options
from ..conf import settings
from ..deadletters.models import DIGITS
from ..exceptions import (
    InvalidOption,
    InvalidSelection,
    UniqueTaken,
    UnknownErrorGroup,
    UnknownType,
)
from ..graphs.models import REDRIVABLE
from ..models import Daemon, ErrorGroup, Inputs, Instance, Node, Task, Type, families
from ..options import check_text, instant
from ..payload import binding, codec
from ..payload.binding import shape
from ..states import DEAD_LETTER, LIVE, Reason, State
from ..store import get_store
from ..text import did_you_mean
from . import gates
from .base import check_by, needs_tables
from .enqueueing import enqueue
from .registry import DELETES, is_internal, registry

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from .registry import TypeLike


# Selections: the Instances that a verb is for, described by a filter.

REDRIVE, CANCEL, DELETE = "redrive", "cancel", "delete"
# The minimum number of digits that name an error group.
FEWEST_DIGITS = 4


def error_group(named: ErrorGroup | str) -> ErrorGroup:
    """Return the error group whose name begins with these hexadecimal digits, four at least.

    Raises UnknownErrorGroup, also if more than one begins with them.
    """
    rows = ErrorGroup.objects.using(settings.DATABASE)
    digits = f"{named.pk:0{DIGITS}x}" if isinstance(named, ErrorGroup) else str(named).lower()
    is_name = FEWEST_DIGITS <= len(digits) <= DIGITS and not set(digits) - set("0123456789abcdef")
    if not is_name or digits[0] > "7":
        raise UnknownErrorGroup(
            f"There is no error group {str(named)!r}: its name is 4 to 16 hexadecimal digits."
        )
    missing = DIGITS - len(digits)
    first = int(digits, 16) << 4 * missing
    last = first + (1 << 4 * missing) - 1
    found = list(rows.filter(pk__gte=first, pk__lte=last).order_by("-last_seen")[:2])
    if not found:
        raise UnknownErrorGroup(f"There is no error group {digits}.")
    if len(found) > 1:
        raise UnknownErrorGroup(
            f"{digits} is the beginning of more than one error group, of {found[0].digits} and "
            f"{found[1].digits} for example: give more digits."
        )
    return found[0]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A filter of Instances for a verb, made by :func:`selection`.

    It selects Instances that ended up to ``until``; for "cancel", live ones that were enqueued up
    to then. ``type`` is a pattern of identifiers, as "dem.*"; ``error`` the key of an error group;
    ``until`` a time in ISO 8601.
    """

    verb: str
    until: str
    type: str | None = None
    error: int | None = None
    collection: str | None = None
    reason: str | None = None

    def rows(self) -> QuerySet[Instance]:
        """Return the Instances that match now, without those redriven or removed meanwhile."""
        rows = Instance.objects.using(settings.DATABASE)
        until = datetime.fromisoformat(self.until)
        if self.verb == CANCEL:
            # No index leads to live Instances among all, but each has a Task.
            tasks = Task.objects.using(settings.DATABASE).filter(type__in=types_of(self.type))
            rows = rows.filter(pk__in=tasks.values("pk"), state__in=LIVE, created__lte=until)
        else:
            reasons = [self.reason] if self.reason else sorted(DEAD_LETTER)
            rows = rows.filter(type__in=types_of(self.type), reason__in=reasons, reason__gt="")
            rows = rows.filter(state=State.FAILED, finished__isnull=False, finished__lte=until)
        if self.error is not None:
            rows = rows.filter(error=self.error)
        if self.collection is not None:
            rows = rows.filter(collection=self.collection)
        return rows

    @property
    def filter(self) -> dict[str, Any]:
        """The fields of the selection, without ``until``."""
        return {name: value for name, value in asdict(self).items() if name != "until"}

    @property
    def key(self) -> str:
        """A hash of the filter: equal for two selections with the same filter."""
        text = json.dumps(self.filter, sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def text(self) -> str:
        """The selection in a few words."""
        error = None if self.error is None else f"{self.error:0{DIGITS}x}"[:8]
        facts = {"type": self.type, "error": error}
        facts |= {"collection": self.collection, "reason": self.reason}
        told = [f"{name} {value!r}" for name, value in facts.items() if value is not None]
        return ", ".join(told) or "all"


def types_of(pattern: str | None) -> list[int]:
    """Return the keys of the matching Types; ATP's own Types match only by their full name."""
    known = Type.objects.using(settings.DATABASE).values_list("identifier", "pk")
    return [key for name, key in known if matches(pattern, name)]


def matches(pattern: str | None, identifier: str) -> bool:
    """Whether a pattern, or None for any, matches a Type."""
    if is_internal(identifier):
        return pattern == identifier
    return pattern is None or fnmatch.fnmatchcase(identifier, pattern)


def selection(
    verb: str,
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    until: datetime | None = None,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
) -> Selection:
    """Check a filter and return it as a :class:`Selection`.

    Raises InvalidSelection, UnknownErrorGroup, or UnknownType if no Type matches.
    """
    given = {"type": type, "error": error, "collection": collection, "reason": reason}
    if all is not True and all is not False:
        raise InvalidSelection(f"all={all!r}: must be True or False.")
    is_empty = {value is None for value in given.values()} == {True}
    if not all and (until is None or verb == CANCEL) and is_empty:
        raise InvalidSelection(
            f"An empty filter would {verb} everything: give one, or all=True.",
            errors=[("all", "An empty filter is for everything: then it must be true.")],
        )
    group = None if error is None else error_group(error)
    return Selection(
        verb=verb,
        until=_moment(until, verb).isoformat(),
        type=None if type is None else checked_pattern(str(type)),
        error=None if group is None else group.pk,
        collection=None if collection is None else _text("collection", collection),
        reason=None if reason is None else _reason(reason),
    )


def _moment(until: datetime | None, verb: str) -> datetime:
    now = get_store().now()
    if until is None:
        return now
    name = "created_before" if verb == CANCEL else "ended_before"
    try:
        time = instant(name, until) or now
    except InvalidOption as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    if time > now:
        why = f"{time.isoformat(' ', 'seconds')} is in the future: it is a time that has passed."
        raise InvalidSelection(f"{name}: {why}", errors=[(name, why)])
    return time


def checked_pattern(pattern: str) -> str:
    """Return a pattern of Types, or an identifier. Raises UnknownType if it matches none."""
    _text("type", pattern)
    known = list(Type.objects.using(settings.DATABASE).values_list("identifier", flat=True))
    if not any(matches(pattern, name) for name in known):
        hint = did_you_mean(pattern, known)
        raise UnknownType(f"No Type {pattern!r} is registered.{hint}")
    return pattern


def _text(name: str, value: object) -> str:
    try:
        check_text(name, value)
    except ValueError as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    return str(value)


def _reason(reason: str) -> str:
    if reason in Reason.values:
        return str(Reason(reason).value)
    hint = did_you_mean(str(reason), Reason.values)
    why = f"must be one of {', '.join(Reason.values)}, not {reason!r}.{hint}"
    raise InvalidSelection(f"reason: {why}", errors=[("reason", why)])


# Plans: the Instances that a verb would be applied to, and those that it cannot be applied to.

PORTION = 2_000
# A plan judges at most this many Instances, the oldest; whoever carries it out judges each.
MOST_JUDGED = 20_000

NO_HANDLER = "no handler"
MISFIT = "inputs do not fit"
UNDONE = "its graph has been undone"
TAKEN = "its unique key is taken"
IN_GRAPH = "it is a node of a graph"
DELETION = "it is a deletion, which is redriven by itself"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The ``count`` of Instances that a verb would be applied to, by group, Type and collection.

    The keys of ``by_error`` are names of error groups, "" for Instances without one. ``cannot``
    counts, by reason, the Instances that the verb cannot be applied to; ``count`` does not include
    them. ``takes`` is the duration at the given rate, None without a rate. If there are very many,
    only the first ``judged`` of them were judged, and ``count`` includes all others; otherwise
    ``judged`` is None.
    """

    selection: Selection
    count: int
    by_error: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, int] = field(default_factory=dict)
    by_collection: Mapping[str, int] = field(default_factory=dict)
    cannot: Mapping[str, int] = field(default_factory=dict)
    takes: timedelta | None = None
    judged: int | None = None


def plan(selection: Selection, per_second: float | None = None) -> Plan:
    """Return the :class:`Plan` of a selection. It only reads, and waits for no lock."""
    rows = selection.rows()
    counted = rows.values_list("type_id", "collection", "error_id").annotate(Count("pk"))
    counts: Counter[tuple[int, str, int | None]] = Counter()
    for type, collection, error, count in counted.order_by():
        counts[type, collection, error] = count
    total = counts.total()
    cannot: Counter[str] = Counter()
    for (type, collection, error, why), count in _left_out(selection).items():
        cannot[why] += count
        counts[type, collection, error] -= count
    types = dict(Type.objects.using(settings.DATABASE).values_list("pk", "identifier"))
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for (type, collection, error), count in counts.items():
        by["type"][types.get(type, f"#{type}")] += count
        by["collection"][collection] += count
        by["error"][ErrorGroup(pk=error).name if error is not None else ""] += count
    count = counts.total()
    return Plan(
        selection=selection,
        count=count,
        **{f"by_{name}": _largest_first(each) for name, each in by.items()},
        cannot=_largest_first(cannot),
        takes=None if per_second is None else timedelta(seconds=count / per_second),
        judged=MOST_JUDGED if selection.verb == REDRIVE and total > MOST_JUDGED else None,
    )


def _largest_first(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in counts.most_common() if count}


def _left_out(selection: Selection) -> Counter[tuple[int, str, int | None, str]]:
    """Count those that must be left out, by type, collection, error group and reason."""
    if selection.verb == DELETE:
        nodes = Node.objects.using(settings.DATABASE).filter(graph__isnull=False)
        kept = selection.rows().filter(Exists(nodes.filter(pk=OuterRef("pk")).order_by()))
        counted = kept.values_list("type_id", "collection", "error_id").annotate(Count("pk"))
        return Counter({(*facts, IN_GRAPH): count for *facts, count in counted.order_by()})
    found: Counter[tuple[int, str, int | None, str]] = Counter()
    if selection.verb != REDRIVE:
        return found
    judge, after = Judge(REDRIVE), 0
    for _ in range(0, MOST_JUDGED, PORTION):
        portion = list(selection.rows().filter(pk__gt=after).order_by("pk")[:PORTION])
        if not portion:
            break
        after = portion[-1].pk
        cannot = judge.cannot(portion)
        for each in portion:
            if each.pk in cannot:
                found[each.type_id, each.collection, each.error_id, cannot[each.pk]] += 1
    return found


class Judge:
    """Tells which Instances a verb cannot be applied to, and why."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._types: dict[int, str] = {}
        # Whether inputs fit, by Type and shape of the inputs: a cache.
        self._judged: dict[object, bool] = {}
        self._served: set[str] | None = None

    def refused(self, instances: Sequence[Instance]) -> dict[int, str]:
        """Return the reasons, by key, for which a redrive itself refuses Instances."""
        found = dict.fromkeys(self._undone([instance.pk for instance in instances]), UNDONE)
        return found | self._taken(instances)

    def cannot(self, instances: Sequence[Instance]) -> dict[int, str]:
        """Return the reasons by key; an Instance without a reason can be taken."""
        keys = [instance.pk for instance in instances]
        if self._verb == DELETE:
            nodes = Node.objects.using(settings.DATABASE).filter(graph__isnull=False)
            return dict.fromkeys(nodes.filter(pk__in=keys).values_list("pk", flat=True), IN_GRAPH)
        if self._verb != REDRIVE:
            return {}
        found = self.refused(instances)
        fitting = []
        for instance in instances:
            if self._name(instance.type_id) == DELETES:
                found[instance.pk] = DELETION
            elif not self._has_handler(self._name(instance.type_id)):
                found[instance.pk] = NO_HANDLER
            elif self._name(instance.type_id) in registry:
                fitting.append(instance)
        return found | dict.fromkeys(self._misfits(fitting), MISFIT)

    def _undone(self, keys: Sequence[int]) -> list[int]:
        nodes = Node.objects.using(settings.DATABASE).filter(pk__in=keys, graph__isnull=False)
        return list(nodes.exclude(REDRIVABLE).values_list("pk", flat=True))

    def _taken(self, instances: Sequence[Instance]) -> dict[int, str]:
        """Return the Instances whose unique key is taken.

        Of several with one key, the first can be redriven, and none if a live Instance has the key.
        """
        keys = {each: (each.own or {}).get(options.UNIQUE) for each in instances}
        if not any(keys.values()):
            return {}
        names = families(Type.objects.using(settings.DATABASE))
        wanted: dict[tuple[int, str], list[int]] = defaultdict(list)
        for each, key in keys.items():
            if key is not None:
                wanted[min(names.get(each.type_id, {each.type_id})), key].append(each.pk)
        tasks = Task.objects.using(settings.DATABASE).filter(unique_key__in={k for _, k in wanted})
        live = {
            (min(names.get(type, {type})), key)
            for type, key in tasks.values_list("type_id", "unique_key")
        }
        taken = {key: keys if key in live else keys[1:] for key, keys in wanted.items()}
        return {key: TAKEN for keys in taken.values() for key in keys}

    def _name(self, type: int) -> str:
        if type not in self._types:
            rows = Type.objects.using(settings.DATABASE)
            self._types |= dict(rows.values_list("pk", "identifier"))
        return self._types.get(type, "")

    def _has_handler(self, type: str) -> bool:
        """Whether this process declares the Type, or a daemon serves it."""
        if type in registry:
            return True
        if self._served is None:
            rows = Daemon.objects.using(settings.DATABASE).values_list("types", flat=True)
            self._served = {name for types in rows if isinstance(types, list) for name in types}
        return type in self._served

    def _misfits(self, instances: Sequence[Instance]) -> Iterator[int]:
        """Yield the keys of the Instances whose inputs do not fit the handler of this process."""
        types = {instance.pk: self._name(instance.type_id) for instance in instances}
        rows = Inputs.objects.using(settings.DATABASE).filter(pk__in=types)
        for key, format, data in rows.values_list("pk", "format", "data"):
            if format == codec.JSON and not self._fits(types[key], data):
                yield key

    def _fits(self, type: str, data: str) -> bool:
        try:
            placed, names = shape(json.loads(data))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return False
        key = type, placed, names
        if key not in self._judged:
            declared: Any = registry.get(type)
            given = [None] * placed, dict.fromkeys(names)
            # Adapters may make the inputs fit: then a redrive tries it.
            fits = not binding.misfit(declared.signatures, *given)
            self._judged[key] = fits or bool(declared.adapters)
        return self._judged[key]


# The verbs on all Instances that match a filter: each plans, or enqueues an Instance to do it.

THRESHOLD = 0.95
MOST_CANARIES = 1_000


class Redrives(TypedDict, total=False):
    """The parameters of :func:`redrive_matching`, except ``dry_run``."""

    type: TypeLike | None
    error: ErrorGroup | str | None
    ended_before: datetime | None
    collection: str | None
    reason: Reason | str | None
    all: bool
    rate: str | None
    canary: int
    threshold: float
    by: str


@overload
def redrive_matching(*, dry_run: Literal[True], **given: Unpack[Redrives]) -> Plan: ...
@overload
def redrive_matching(*, dry_run: Literal[False] = False, **given: Unpack[Redrives]) -> Instance: ...
@overload
def redrive_matching(*, dry_run: bool, **given: Unpack[Redrives]) -> Plan | Instance: ...


@needs_tables
def redrive_matching(
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    ended_before: datetime | None = None,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
    rate: str | None = None,
    canary: int = 0,
    threshold: float = THRESHOLD,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Redrive all dead letters that match; return the Instance of ``atp.redrive`` that does it.

    ``type`` may be a pattern, as "dem.*". ``reason`` is a Reason of FAILED; without it, any of the
    dead letters. ``ended_before`` defaults to now. With ``dry_run`` nothing is written, and the
    :class:`Plan` is returned. ``rate`` ("20/s") limits the speed. ``canary`` is how many are
    redriven first; the others follow once these have ended and the fraction ``threshold`` of them
    FINISHED. Raises, with nothing written, InvalidSelection, InvalidOption, InvalidLimit,
    UnknownType, UnknownErrorGroup, or UniqueTaken while an Instance with the same filter is live.
    """
    chosen = selection(
        REDRIVE,
        type=type,
        error=error,
        until=ended_before,
        collection=collection,
        reason=reason,
        all=all,
    )
    how = {"rate": rate, "canary": canary, "threshold": threshold}
    return _planned(chosen, how, dry_run, by)


@needs_tables
def delete_matching(
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    ended_before: datetime | None = None,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
    rate: str | None = None,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Remove all dead letters that match; for the parameters see :func:`redrive_matching`."""
    chosen = selection(
        DELETE,
        type=type,
        error=error,
        until=ended_before,
        collection=collection,
        reason=reason,
        all=all,
    )
    return _planned(chosen, {"rate": rate}, dry_run, by)


@needs_tables
def cancel_matching(
    *,
    type: TypeLike | None = None,
    collection: str | None = None,
    created_before: datetime | None = None,
    all: bool = False,
    rate: str | None = None,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Cancel all live Instances that match, enqueued up to ``created_before``, at a rate."""
    chosen = selection(CANCEL, type=type, collection=collection, until=created_before, all=all)
    return _planned(chosen, {"rate": rate}, dry_run, by)


VERBS: dict[str, Callable[..., Any]] = {
    REDRIVE: redrive_matching,
    CANCEL: cancel_matching,
    DELETE: delete_matching,
}


def _planned(chosen: Selection, how: dict[str, Any], dry_run: bool, by: str) -> Plan | Instance:
    check_by(by)
    per_second = None if how["rate"] is None else gates.per_second(how["rate"])
    _check_canary(how)
    found = plan(chosen, per_second)
    canary = how.get("canary", 0)
    if canary > found.count:
        raise InvalidOption(f"canary={canary}: there are only {found.count} that match.")
    if dry_run:
        return found
    if not found.count:
        told = ", ".join(f"{count} {why}" for why, count in found.cannot.items())
        raise InvalidSelection(
            f"There is nothing to {chosen.verb}: {chosen.text}."
            + (f" It cannot be done to {told}." if told else "")
        )
    given = {"selection": chosen.__dict__, "count": found.count, "by": by, **how}
    type = registry.get(f"atp.{chosen.verb}").with_options(unique=chosen.key, created_by=by)
    try:
        return enqueue(type, **given)
    except UniqueTaken as error:
        live = error.instance
        told = f"A {chosen.verb} of this filter is live: {live.uuid if live else ''}."
        raise UniqueTaken(told, live) from None


def _check_canary(how: dict[str, Any]) -> None:
    canary, threshold = how.get("canary", 0), how.get("threshold", THRESHOLD)
    if not isinstance(canary, int) or isinstance(canary, bool) or not 0 <= canary <= MOST_CANARIES:
        raise InvalidOption(f"canary={canary!r}: must be a whole number from 0 to {MOST_CANARIES}.")
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not is_number or not 0 < threshold <= 1:
        raise InvalidOption(f"threshold={threshold!r}: must be more than 0 and at most 1.")


# Plans in words.

_WOULD = {
    REDRIVE: "FAILED would be tried again",
    CANCEL: "would be cancelled",
    DELETE: "FAILED would be removed for good",
}
# The maximum number of Types, groups or collections that are named.
NAMED = 5


def describe(outcome: Plan | Instance) -> str:
    """Describe the outcome of a verb: a plan, or the Instance that carries it out."""
    if isinstance(outcome, Plan):
        return describe_plan(outcome)
    return f"{outcome.type} {outcome.uuid} does it, and shows how far it is."


def describe_plan(found: Plan) -> str:
    """Describe a plan in one or two lines."""
    most = "" if found.judged is None else "up to "
    would = f"{most}{found.count:,} {_WOULD[found.selection.verb]}"
    collections = {name: count for name, count in found.by_collection.items() if name}
    facts = [_named(found.by_type)]
    if found.selection.verb != CANCEL and found.by_error:
        facts.append(f"errors {_named({k or 'none': v for k, v in found.by_error.items()})}")
    if collections:
        facts.append(f"collections {_named(collections)}")
    if found.takes is not None:
        facts.append(f"it takes {_length(found.takes)}")
    lines = [f"{would}: {'; '.join(filter(None, facts))}" if found.count else would]
    of = "" if found.judged is None else f" of the first {found.judged:,}"
    if found.cannot:
        told = ", ".join(f"{count:,} {why}" for why, count in found.cannot.items())
        lines.append(f"{sum(found.cannot.values()):,}{of} cannot: {told}")
    elif of:
        lines.append(f"all{of} can; the others are judged one by one")
    return "\n".join(lines)


def _named(counts: Mapping[str, int]) -> str:
    told = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:NAMED])
    return f"{told}, … ({len(counts)} in all)" if len(counts) > NAMED else told


def _length(takes: timedelta) -> str:
    minutes, seconds = divmod(round(takes.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"
