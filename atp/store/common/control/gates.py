"""Gates in the portable store: the shut gates, and dropping the Tasks behind them."""

import logging
from dataclasses import dataclass, replace

from django.db.models import Max, Min, Q

from .... import messages
from ....models import Gate, Task
from ....states import Actor, Event, Reason
from ...values import Move
from ..base import ORMBase
from ..mover import Mover

DROP, HOLD = "drop", "hold"


@dataclass(frozen=True)
class Closed:
    """The closed lanes: pairs of a Type's key and a collection. None stands for all."""

    pairs: frozenset

    def shuts(self, type_id, collection=None):
        """Return whether a Type is shut; with a collection, whether that lane is shut."""
        return not self.pairs.isdisjoint(
            (
                (None, None),
                (type_id, None),
                *([] if collection is None else [(type_id, collection)]),
            )
        )

    @property
    def lanes(self):
        """The pairs that name a single lane."""
        return [pair for pair in self.pairs if None not in pair]

    def with_types(self, keys):
        """Return a copy in which all lanes of these Types are closed too."""
        return replace(self, pairs=self.pairs | {(key, None) for key in keys})

    def with_limits(self, limits):
        """Return a copy in which the scopes of these Limits are closed too."""
        return replace(self, pairs=self.pairs | set(limits.values_list("type", "collection")))


class Gates(ORMBase):
    def _closed(self, now):
        """Return the :class:`Closed` scopes, whose gates hold or drop Tasks."""
        return Closed(frozenset(self._shut(now).values_list("type", "collection")))

    def _shut(self, now):
        return self.rows(Gate).filter(Q(until__isnull=True) | Q(until__gt=now))

    def due_lanes(self, types, closed, time, limit):
        """Return up to ``limit`` lanes with Tasks that have been due since ``time``.

        Each is a tuple: the Type's key, the collection, the highest priority among the due Tasks.
        Lanes that are ``closed`` are left out.
        """
        due = self.rows(Task).due(time).filter(type__in=types)
        for type, collection in closed.lanes:
            due = due.exclude(type=type, collection=collection)
        lanes = due.values_list("type", "collection").annotate(Max("priority"))
        return list(lanes.order_by("type", "collection")[:limit])

    def _dropped(self, now):
        """Yield each dropping gate with the QuerySet of the waiting Tasks behind it."""
        for gate in self._shut(now).filter(mode=DROP):
            tasks = self.rows(Task).waiting()
            if gate.type_id is not None:
                tasks = tasks.filter(type=gate.type_id)
            if gate.collection is not None:
                tasks = tasks.filter(collection=gate.collection)
            yield gate, tasks

    def _drops(self):
        """Return whether a Task waits behind a gate that drops it."""
        return any(tasks.exists() for _, tasks in self._dropped(self.now()))

    def _opens(self, now):
        """Return the seconds until the first gate opens by itself; None if none will."""
        first = self._shut(now).aggregate(first=Min("until"))["first"]
        return None if first is None else (first - now).total_seconds()

    def drop(self, *, who="", limit=500):
        now, dropped = self.now(), 0
        for gate, tasks in self._dropped(now):
            if dropped < limit and tasks.exists():
                with self.atomic():
                    # Whoever opens it meanwhile waits; what is enqueued afterwards stays.
                    shut = self._shut(self.now()).filter(pk=gate.pk, mode=DROP, since=gate.since)
                    if not shut.select_for_update(skip_locked=True):
                        continue
                    locked = tasks.select_for_update(skip_locked=True).order_by("pk")
                    keys = list(locked.values_list("pk", flat=True)[: limit - dropped])
                    mover = Mover(self, now).load(keys, waits=False)
                    for key in keys:
                        dropped += mover.apply(_drop(key, gate, who), actor=Actor.ANYONE)
                    mover.write()
        return dropped


def _drop(key, gate, who):
    return Move(
        event=Event.FAIL,
        instance=key,
        who=who,
        message=messages.dropped(gate),
        level=logging.WARNING,
        reason=Reason.DROPPED,
    )
