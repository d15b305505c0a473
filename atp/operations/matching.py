"""Redrive, cancel or delete all Instances that match a filter, or plan such an operation."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
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
from ..models import Daemon, ErrorGroup, Inputs, Instance, Node, Task, Type, group_renamed_types
from ..options import check_text, resolve_time
from ..payload import binding, codec
from ..payload.binding import inputs_shape
from ..querysets import TRIED_AGAIN
from ..states import DEAD_LETTER, LIVE, Reason, State
from ..store import get_store
from ..text import did_you_mean
from . import gates
from .base import check_actor, needs_tables
from .enqueueing import enqueue
from .registry import DELETE_TYPE, is_internal, registry

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from .registry import TypeLike

# Names of operations.
REDRIVE, CANCEL, DELETE = "redrive", "cancel", "delete"
# The minimum number of digits with which a caller can name an error group.
FEWEST_DIGITS = 4

# The number of Instances that a plan reads at a time.
PORTION = 2_000
# A plan checks only this many Instances, the oldest, one by one; the operation itself checks each.
MOST_JUDGED = 20_000
# The defaults and limits of a canary.
THRESHOLD = 0.95
MOST_CANARIES = 1_000
# A plan in words names at most this many Types, groups or collections.
MOST_NAMED = 5

# Reasons for which an operation cannot be applied to an Instance.
NO_HANDLER = "no handler"
INCOMPATIBLE = "inputs do not fit"
UNDONE = "its graph has been undone"
TAKEN = "its unique key is taken"
IN_GRAPH = "it is a node of a graph"
DELETION = "it is a deletion, which is redriven by itself"


# Selections: filters that select the Instances for an operation.


def error_group(group: ErrorGroup | str) -> ErrorGroup:
    """Return the error group whose name begins with these hexadecimal digits (at least four).

    Raises UnknownErrorGroup if no name, or more than one name, begins with the digits.
    """
    rows = ErrorGroup.objects.using(settings.DATABASE)
    digits = f"{group.pk:0{DIGITS}x}" if isinstance(group, ErrorGroup) else str(group).lower()
    is_name = FEWEST_DIGITS <= len(digits) <= DIGITS and not set(digits) - set("0123456789abcdef")
    if not is_name or digits[0] > "7":
        raise UnknownErrorGroup(
            f"There is no error group {str(group)!r}: a name must be 4 to 16 hexadecimal digits."
        )
    missing = DIGITS - len(digits)
    first = int(digits, 16) << 4 * missing
    last = first + (1 << 4 * missing) - 1
    found = list(rows.filter(pk__gte=first, pk__lte=last).order_by("-last_seen")[:2])
    if not found:
        raise UnknownErrorGroup(f"There is no error group {digits}.")
    if len(found) > 1:
        raise UnknownErrorGroup(
            f"The names of several error groups begin with {digits}, for example "
            f"{found[0].digits} and {found[1].digits}: give more digits."
        )
    return found[0]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A filter that selects the Instances for an operation; see :func:`selection`.

    ``verb`` is the name of the operation. "redrive" and "delete" select dead letters that ended at
    or before ``until``, and "cancel" selects live Instances that were enqueued at or before
    ``until``, a time in ISO 8601. ``type`` is a pattern for identifiers of Types, such as "dem.*",
    and ``error`` is the key of an error group. The other times are in ISO 8601, too. ``state`` is
    for "cancel" alone, ``reason`` and the times of the end are for the others.
    """

    verb: str
    until: str
    type: str | None = None
    error: int | None = None
    collection: str | None = None
    reason: str | None = None
    state: str | None = None
    created_after: str | None = None
    created_before: str | None = None
    ended_after: str | None = None
    created_by: str | None = None
    tried_again: bool | None = None

    def rows(self) -> QuerySet[Instance]:
        """Return a QuerySet of the Instances that match the filter now."""
        rows = Instance.objects.using(settings.DATABASE)
        until = datetime.fromisoformat(self.until)
        if self.verb == CANCEL:
            # There is no index of live Instances, but each of them has a Task.
            tasks = Task.objects.using(settings.DATABASE).filter(type__in=self._types)
            rows = rows.filter(pk__in=tasks.values("pk"), state__in=LIVE, created__lte=until)
        else:
            reasons = [self.reason] if self.reason else sorted(DEAD_LETTER)
            rows = rows.filter(type__in=self._types, reason__in=reasons, reason__gt="")
            rows = rows.filter(state=State.FAILED, finished__isnull=False, finished__lte=until)
        if self.error is not None:
            rows = rows.filter(error=self.error)
        if self.collection is not None:
            rows = rows.filter(collection=self.collection)
        if self.state is not None:
            rows = rows.filter(state=self.state)
        if self.created_after or self.created_before:
            span = _time_of(self.created_after), _time_of(self.created_before)
            rows = rows.filter(rows.created_between(*span))
        if self.ended_after is not None:
            rows = rows.filter(finished__gte=_time_of(self.ended_after))
        if self.created_by is not None:
            rows = rows.filter(created_by=self.created_by)
        return rows.filter(TRIED_AGAIN) if self.tried_again else rows

    @cached_property
    def _types(self) -> list[int]:
        """The primary keys of the Types that match. A Type that is registered later does not."""
        return types_of(self.type)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, as a dict of plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def filter(self) -> dict[str, Any]:
        """The fields that are set, except ``until``, as a dict."""
        return {name: value for name, value in self.fields.items() if name != "until"}

    @property
    def key(self) -> str:
        """A hash of the filter. Two selections that differ only in ``until`` have the same hash."""
        text = json.dumps(self.filter, sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def text(self) -> str:
        """The filter in words, such as "type 'dem.*', reason 'ERROR'", or "all"."""
        error = None if self.error is None else f"{self.error:0{DIGITS}x}"[:8]
        facts = {name: value for name, value in self.filter.items() if name != "verb"}
        facts |= {} if error is None else {"error": error}
        parts = [f"{name.replace('_', ' ')} {value!r}" for name, value in facts.items()]
        return ", ".join(parts) or "all"


def _time_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def types_of(pattern: str | None) -> list[int]:
    """Return the primary keys of the Types that match a pattern.

    None matches all Types except ATP's own.
    """
    known = Type.objects.using(settings.DATABASE).values_list("identifier", "pk")
    return [key for name, key in known if matches(pattern, name)]


def matches(pattern: str | None, identifier: str) -> bool:
    """Return True if a pattern matches the identifier of a Type.

    None matches all Types except ATP's own, which only their whole identifiers match.
    """
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
    state: State | str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    ended_after: datetime | None = None,
    created_by: str | None = None,
    tried_again: bool = False,
    all: bool = False,
) -> Selection:
    """Check a filter and return it as a :class:`Selection`.

    Raises InvalidSelection, UnknownErrorGroup, or UnknownType if no Type matches.
    """
    filters = (type, error, collection, reason, state, created_by, tried_again or None)
    filters += (created_after, created_before, ended_after)
    if all is not True and all is not False:
        raise InvalidSelection(f"all={all!r}: must be True or False.")
    is_empty = not any(value is not None for value in filters)
    if not all and (until is None or verb == CANCEL) and is_empty:
        raise InvalidSelection(
            f"An empty filter would {verb} everything. Give a filter, or all=True.",
            errors=[("all", "It must be true, because the filter is empty.")],
        )
    group = error if error is None or isinstance(error, ErrorGroup) else error_group(error)
    return Selection(
        verb=verb,
        until=_check_until(until, verb).isoformat(),
        type=None if type is None else checked_pattern(str(type)),
        error=None if group is None else group.pk,
        collection=None if collection is None else _check_text("collection", collection),
        reason=None if reason is None else _check_word("reason", reason, Reason.values),
        state=None if state is None else _check_word("state", state, sorted(LIVE)),
        created_after=_check_time("created_after", created_after),
        created_before=_check_time("created_before", created_before),
        ended_after=_check_time("ended_after", ended_after),
        created_by=None if created_by is None else _check_text("created_by", created_by),
        tried_again=True if tried_again else None,
    )


def _check_time(name: str, time: datetime | None) -> str | None:
    try:
        time = resolve_time(name, time)
    except InvalidOption as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    return None if time is None else time.isoformat()


def _check_until(until: datetime | None, verb: str) -> datetime:
    now = get_store().now()
    if until is None:
        return now
    name = "created_before" if verb == CANCEL else "ended_before"
    try:
        time = resolve_time(name, until) or now
    except InvalidOption as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    if time > now:
        why = f"{time.isoformat(' ', 'seconds')} is in the future, but must have passed."
        raise InvalidSelection(f"{name}: {why}", errors=[(name, why)])
    return time


def checked_pattern(pattern: str) -> str:
    """Return the pattern or identifier, or raise UnknownType if no registered Type matches."""
    _check_text("type", pattern)
    known = list(Type.objects.using(settings.DATABASE).values_list("identifier", flat=True))
    if not any(matches(pattern, name) for name in known):
        hint = did_you_mean(pattern, known)
        raise UnknownType(f"No Type {pattern!r} is registered.{hint}")
    return pattern


def _check_text(name: str, value: object) -> str:
    try:
        check_text(name, value)
    except ValueError as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    return str(value)


def _check_word(name: str, word: str, words: Sequence[str]) -> str:
    if word in words:
        return str(word)
    hint = did_you_mean(str(word), words)
    why = f"must be one of {', '.join(words)}, not {word!r}.{hint}"
    raise InvalidSelection(f"{name}: {why}", errors=[(name, why)])


# Plans: the Instances to which an operation would be applied, and those to which it cannot be.


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many Instances an operation would be applied to, and how many it cannot be applied to.

    ``count`` is the number of Instances to which the operation would be applied. ``by_error``,
    ``by_type`` and ``by_collection`` break this number down by the name of the error group ("" for
    Instances without one), by the identifier of the Type, and by collection. ``cannot`` has the
    numbers of all other matching Instances, by the reason why the operation cannot be applied.
    ``takes`` is how long the operation takes at the given rate, None without a rate.

    If very many Instances match, the plan checks only the first ``judged`` of them one by one, and
    ``count`` includes all others. Otherwise ``judged`` is None.
    """

    selection: Selection
    count: int
    by_error: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, int] = field(default_factory=dict)
    by_collection: Mapping[str, int] = field(default_factory=dict)
    cannot: Mapping[str, int] = field(default_factory=dict)
    takes: timedelta | None = None
    judged: int | None = None


def make_plan(selection: Selection, per_second: float | None = None) -> Plan:
    """Return the :class:`Plan` for a selection, without writing or locking anything.

    ``per_second`` is the number of Instances per second that the operation may take; None means no
    limit.
    """
    rows = selection.rows()
    counted = rows.values_list("type_id", "collection", "error_id").annotate(Count("pk"))
    counts: Counter[tuple[int, str, int | None]] = Counter()
    for type, collection, error, count in counted.order_by():
        counts[type, collection, error] = count
    total = counts.total()
    cannot: Counter[str] = Counter()
    types = dict(Type.objects.using(settings.DATABASE).values_list("pk", "identifier"))
    for (type, collection, error, why), count in _count_left_out(selection, types).items():
        cannot[why] += count
        counts[type, collection, error] -= count
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


def _count_left_out(
    selection: Selection, types: Mapping[int, str]
) -> Counter[tuple[int, str, int | None, str]]:
    """Count the Instances to which an operation cannot be applied.

    ``types`` has the identifiers of the Types by key. The counts are by Type, collection, error
    group and the reason why not.
    """
    if selection.verb == DELETE:
        nodes = Node.objects.using(settings.DATABASE).filter(graph__isnull=False)
        in_graph = selection.rows().filter(Exists(nodes.filter(pk=OuterRef("pk")).order_by()))
        counted = in_graph.values_list("type_id", "collection", "error_id").annotate(Count("pk"))
        return Counter({(*facts, IN_GRAPH): count for *facts, count in counted.order_by()})
    found: Counter[tuple[int, str, int | None, str]] = Counter()
    if selection.verb != REDRIVE:
        return found
    judge, after = Judge(REDRIVE, types), 0
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
    """Finds out to which Instances an operation cannot be applied, and why not."""

    def __init__(self, verb: str, types: Mapping[int, str] | None = None) -> None:
        self._verb = verb
        # The identifiers of the known Types by key.
        self._types = dict(types or {})
        # A cache by Type and shape of the inputs: True if the inputs fit the handler.
        self._judged: dict[object, bool] = {}
        self._served_types: set[str] | None = None

    def refused(self, instances: Sequence[Instance]) -> dict[int, str]:
        """Return a dict of the Instances that the store would not redrive.

        The keys are those of the Instances, and the values are the reasons.
        """
        found = dict.fromkeys(self._find_undone([instance.pk for instance in instances]), UNDONE)
        return found | self._find_taken(instances)

    def cannot(self, instances: Sequence[Instance]) -> dict[int, str]:
        """Return a dict of the Instances to which the operation cannot be applied.

        The keys are those of the Instances, and the values are the reasons.
        """
        keys = [instance.pk for instance in instances]
        if self._verb == DELETE:
            nodes = Node.objects.using(settings.DATABASE).filter(graph__isnull=False)
            return dict.fromkeys(nodes.filter(pk__in=keys).values_list("pk", flat=True), IN_GRAPH)
        if self._verb != REDRIVE:
            return {}
        found = self.refused(instances)
        known = []
        for instance in instances:
            if self._type_name(instance.type_id) == DELETE_TYPE:
                found[instance.pk] = DELETION
            elif not self._has_handler(self._type_name(instance.type_id)):
                found[instance.pk] = NO_HANDLER
            elif self._type_name(instance.type_id) in registry:
                known.append(instance)
        return found | dict.fromkeys(self._find_incompatible(known), INCOMPATIBLE)

    def _find_undone(self, keys: Sequence[int]) -> list[int]:
        nodes = Node.objects.using(settings.DATABASE).filter(pk__in=keys, graph__isnull=False)
        return list(nodes.exclude(REDRIVABLE).values_list("pk", flat=True))

    def _find_taken(self, instances: Sequence[Instance]) -> dict[int, str]:
        """Return a dict of the Instances whose unique key is taken, with the reason TAKEN.

        If several FAILED Instances have the same unique key, only the first can be redriven. If a
        live Instance has the key, none of the FAILED ones can be redriven.
        """
        keys = {each: (each.own or {}).get(options.UNIQUE) for each in instances}
        if not any(keys.values()):
            return {}
        names = group_renamed_types(Type.objects.using(settings.DATABASE))
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

    def _type_name(self, type: int) -> str:
        if type not in self._types:
            rows = Type.objects.using(settings.DATABASE)
            self._types |= dict(rows.values_list("pk", "identifier"))
        return self._types.get(type, "")

    def _has_handler(self, type: str) -> bool:
        """Return True if this process declares the Type, or a daemon serves it."""
        if type in registry:
            return True
        if self._served_types is None:
            rows = Daemon.objects.using(settings.DATABASE).values_list("types", flat=True)
            self._served_types = {
                name for types in rows if isinstance(types, list) for name in types
            }
        return type in self._served_types

    def _find_incompatible(self, instances: Sequence[Instance]) -> Iterator[int]:
        """Yield the key of each Instance whose inputs do not fit the handler in this process."""
        types = {instance.pk: self._type_name(instance.type_id) for instance in instances}
        rows = Inputs.objects.using(settings.DATABASE).filter(pk__in=types)
        for key, format, data in rows.values_list("pk", "format", "data"):
            if format == codec.JSON and not self._fits(types[key], data):
                yield key

    def _fits(self, type: str, data: str) -> bool:
        try:
            placed, names = inputs_shape(json.loads(data))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return False
        key = type, placed, names
        if key not in self._judged:
            declared: Any = registry.get(type)
            arguments = [None] * placed, dict.fromkeys(names)
            fits = not binding.why_incompatible(declared.signatures, *arguments)
            # If the Type has adapters, these may make the inputs fit, so a redrive can succeed.
            self._judged[key] = fits or bool(declared.adapters)
        return self._judged[key]


# Operations on all Instances that match a filter. Each operation returns a plan, or enqueues an
# Instance that does the work.


class RedriveArgs(TypedDict, total=False):
    """The keyword arguments of :func:`redrive_matching`, except ``dry_run``."""

    type: TypeLike | None
    error: ErrorGroup | str | None
    ended_before: datetime | None
    ended_after: datetime | None
    created_after: datetime | None
    created_before: datetime | None
    created_by: str | None
    tried_again: bool
    collection: str | None
    reason: Reason | str | None
    all: bool
    rate: str | None
    canary: int
    threshold: float
    by: str


@overload
def redrive_matching(*, dry_run: Literal[True], **given: Unpack[RedriveArgs]) -> Plan: ...
@overload
def redrive_matching(
    *, dry_run: Literal[False] = False, **given: Unpack[RedriveArgs]
) -> Instance: ...
@overload
def redrive_matching(*, dry_run: bool, **given: Unpack[RedriveArgs]) -> Plan | Instance: ...


@needs_tables
def redrive_matching(
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    ended_before: datetime | None = None,
    ended_after: datetime | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    created_by: str | None = None,
    tried_again: bool = False,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
    rate: str | None = None,
    canary: int = 0,
    threshold: float = THRESHOLD,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Enqueue an Instance of ``atp.redrive`` that redrives all matching dead letters; return it.

    ``type`` is an identifier or a pattern, such as "dem.*". ``reason`` is a Reason of FAILED;
    without ``reason``, dead letters with any reason match. ``ended_before`` defaults to now. The
    times include the moment that they name. ``created_by`` is the actor that enqueued the
    Instances, and ``tried_again`` selects those with an attempt that raised or was lost.
    ``rate``, such as "20/s", limits the speed. If ``canary`` is not 0, that number of dead letters
    is redriven first. The others follow once these have all ended, if the fraction ``threshold`` of
    them is FINISHED. With ``dry_run`` this only returns the :class:`Plan`.

    Raises InvalidSelection, InvalidOption, InvalidLimit, UnknownType or UnknownErrorGroup. Raises
    UniqueTaken if a redrive with the same filter is still live. After an exception nothing has been
    written.
    """
    chosen = selection(
        REDRIVE,
        type=type,
        error=error,
        until=ended_before,
        ended_after=ended_after,
        created_after=created_after,
        created_before=created_before,
        created_by=created_by,
        tried_again=tried_again,
        collection=collection,
        reason=reason,
        all=all,
    )
    how = {"rate": rate, "canary": canary, "threshold": threshold}
    return _plan_or_enqueue(chosen, how, dry_run, by)


@needs_tables
def delete_matching(
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    ended_before: datetime | None = None,
    ended_after: datetime | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    created_by: str | None = None,
    tried_again: bool = False,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
    rate: str | None = None,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Enqueue an Instance of ``atp.delete`` that removes all matching dead letters; return it.

    The parameters are those of :func:`redrive_matching`. With ``dry_run`` this only returns the
    :class:`Plan`.
    """
    chosen = selection(
        DELETE,
        type=type,
        error=error,
        until=ended_before,
        ended_after=ended_after,
        created_after=created_after,
        created_before=created_before,
        created_by=created_by,
        tried_again=tried_again,
        collection=collection,
        reason=reason,
        all=all,
    )
    return _plan_or_enqueue(chosen, {"rate": rate}, dry_run, by)


@needs_tables
def cancel_matching(
    *,
    type: TypeLike | None = None,
    collection: str | None = None,
    state: State | str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    created_by: str | None = None,
    tried_again: bool = False,
    all: bool = False,
    rate: str | None = None,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Enqueue an Instance of ``atp.cancel`` that cancels all matching live Instances; return it.

    ``created_before`` selects the Instances that were enqueued at or before that time, and
    ``state`` those in one of the live states, while the plan and the operation read them. The other
    parameters are those of :func:`redrive_matching`. With ``dry_run`` this only returns the
    :class:`Plan`.
    """
    chosen = selection(
        CANCEL,
        type=type,
        collection=collection,
        state=state,
        created_after=created_after,
        until=created_before,
        created_by=created_by,
        tried_again=tried_again,
        all=all,
    )
    return _plan_or_enqueue(chosen, {"rate": rate}, dry_run, by)


def _plan_or_enqueue(
    chosen: Selection, how: dict[str, Any], dry_run: bool, by: str
) -> Plan | Instance:
    check_actor(by)
    per_second = None if how["rate"] is None else gates.per_second(how["rate"])
    _check_canary(how)
    planned = make_plan(chosen, per_second)
    canary = how.get("canary", 0)
    if canary > planned.count:
        raise InvalidOption(f"canary={canary}: only {planned.count} Instances match.")
    if dry_run:
        return planned
    if not planned.count:
        refused = ", ".join(f"{count} {why}" for why, count in planned.cannot.items())
        raise InvalidSelection(
            f"There is nothing to {chosen.verb} for this filter: {chosen.text}."
            + (f" Instances that match but are left out: {refused}." if refused else "")
        )
    inputs = {"selection": chosen.fields, "count": planned.count, "by": by, **how}
    type = registry.get(f"atp.{chosen.verb}").with_options(unique=chosen.key, created_by=by)
    try:
        return enqueue(type, **inputs)
    except UniqueTaken as error:
        live = error.instance
        message = f"A {chosen.verb} with this filter is live already: {live.uuid if live else ''}."
        raise UniqueTaken(message, live) from None


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


def describe_outcome(outcome: Plan | Instance) -> str:
    """Describe the plan of an operation, or the Instance that carries the operation out."""
    if isinstance(outcome, Plan):
        return describe_plan(outcome)
    return f"{outcome.type} {outcome.uuid} carries this out and reports its progress."


def describe_plan(plan: Plan) -> str:
    """Return one or two lines of text that describe a plan for people."""
    most = "" if plan.judged is None else "up to "
    would = f"{most}{plan.count:,} {_WOULD[plan.selection.verb]}"
    collections = {name: count for name, count in plan.by_collection.items() if name}
    facts = [_describe_counts(plan.by_type)]
    if plan.selection.verb != CANCEL and plan.by_error:
        by_error = {name or "none": count for name, count in plan.by_error.items()}
        facts.append(f"errors {_describe_counts(by_error)}")
    if collections:
        facts.append(f"collections {_describe_counts(collections)}")
    if plan.takes is not None:
        facts.append(f"it takes {_describe_duration(plan.takes)}")
    lines = [f"{would}: {'; '.join(filter(None, facts))}" if plan.count else would]
    judged = "" if plan.judged is None else f" of the first {plan.judged:,}"
    if plan.cannot:
        reasons = ", ".join(f"{count:,} {why}" for why, count in plan.cannot.items())
        lines.append(f"{sum(plan.cannot.values()):,}{judged} cannot: {reasons}")
    elif judged:
        lines.append(f"all{judged} can; the others are checked when their turn comes")
    return "\n".join(lines)


def _describe_counts(counts: Mapping[str, int]) -> str:
    named = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:MOST_NAMED])
    return f"{named}, … ({len(counts)} in all)" if len(counts) > MOST_NAMED else named


def _describe_duration(takes: timedelta) -> str:
    minutes, seconds = divmod(round(takes.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"
