"""Plans: the Instances that a verb would be applied to, and those that it cannot be applied to."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef

from ...conf import settings
from ...models import Daemon, ErrorGroup, Inputs, Instance, Node, Task, Type
from ...payload import binding, codec, own
from ...payload.adapting import shape
from ...rows.graph import REDRIVABLE
from ...rows.type import families
from ..registry import DELETES, registry
from .selection import DELETE, REDRIVE, Selection

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
        keys = {each: (each.own or {}).get(own.UNIQUE) for each in instances}
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
