"""The QuerySets of the models, whose filters can be chained. Only ``delete()`` writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import F, IntegerField, Q, Subquery
from django.db.models.functions import Left, Now

from .conf import settings
from .exceptions import IllegalTransition
from .fields import first_uuid7
from .states import CLAIMED, DEAD_LETTER, LIVE, NOT_RUNNING, TERMINAL, Event, State
from .text import NO_DAEMON

# The order in which daemons claim the Tasks of a lane (G8). Python code derives the order from this
# constant. Each SQL file of the store that repeats the order names this constant in its first
# lines; a test compares them.
CLAIMING_ORDER = ("-priority", "due_at", "instance_id")
# The same order, lane by lane: that of the index on waiting Tasks.
LANES_ORDER = ("type_id", "collection", *CLAIMING_ORDER)
# Terminal rows, by the conditions of the partial indexes on these rows. The state is not in any
# index, because it changes while the Instance is live.
_FINISHED = Q(finished__isnull=False, reason="")
_FAILED = Q(finished__isnull=False, reason__gt="")
# Primary keys are in the order of ``created``, except for enqueues that overlap. No enqueue takes
# longer than this from its reading of the clock to its primary key.
_OVERLAP = timedelta(minutes=1)
# Times for which a uuid can be made.
_EARLIEST, _LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
# A page reads at most this many rows to find those that match conditions without an index.
MOST_SEARCHED = 200_000


@dataclass(frozen=True, kw_only=True)
class Search:
    """How :func:`atp.reports.paging.page` finds rows by conditions that no index answers.

    ``base`` selects rows without these conditions, so that an index has them in the order of the
    list. For each page the search reads at most ``most`` of them. If ``accepts`` is set, a row
    also has to have an annotation ``searched`` for whose value ``accepts`` returns True.
    """

    base: Any
    most: int = MOST_SEARCHED
    accepts: Callable[[Any], bool] | None = None


# The Instances with an attempt that raised, or was lost while running.
TRIED_AGAIN = Q(retries__gt=0) | Q(restarts__gt=0)


def _ran_longer(duration: timedelta, now: datetime) -> Q:
    """Return the condition that the last attempt ran longer than ``duration``, or has until now."""
    runs = Q(state__in=(State.RUNNING, State.PAUSED), started__lt=now - duration)
    ran = Q(finished__isnull=False, finished__gt=F("started") + duration)
    return runs | (ran & ~Q(reason__in=NOT_RUNNING))


def refuse_removal(instance: Any) -> IllegalTransition:
    """Return the exception for code that tries to delete a live Instance with Django's ORM."""
    return IllegalTransition(
        f"{instance.uuid} cannot be removed: it is {instance.state}. "
        "atp.queue.delete(instance, cancel=True) cancels it and removes it.",
        state=State(instance.state),
    )


class InstanceQuerySet(models.QuerySet):
    # How pages of these rows are found; None if an index answers all conditions.
    search: Search | None = None

    def _clone(self) -> Self:
        clone = super()._clone()  # type: ignore[misc]
        clone.search = self.search
        return clone

    def searched(
        self,
        condition: Q,
        *,
        most: int = MOST_SEARCHED,
        accepts: Callable[[Any], bool] | None = None,
    ) -> Self:
        """Select the rows that match a condition that no index answers; see :class:`Search`."""
        found = self.filter(condition)
        before = self.search or Search(base=self)
        found.search = Search(
            base=before.base, most=min(most, before.most), accepts=accepts or before.accepts
        )
        return found

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the Instances as Django does. Raises IllegalTransition if any of them is live.

        In that case nothing is deleted, because a daemon may be running the live Instance.
        :func:`atp.queue.delete` can cancel live Instances first.
        """
        live = None if self.query.is_sliced else self.live().first()
        if live is not None:
            raise refuse_removal(live)
        return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def reload(self, instances: Iterable[Any]) -> list[Any]:
        """Read the fields of Instances again, in one query; return those that no longer exist."""
        instances = list(instances)
        rows, missing = self.in_bulk([each.pk for each in instances]), []
        for instance in instances:
            row = rows.get(instance.pk)
            if row is None:
                missing.append(instance)
                continue
            for field in self.model._meta.concrete_fields:
                setattr(instance, field.attname, getattr(row, field.attname))
            # The Type never changes; the other related rows in the cache may be out of date.
            cache = instance._state.fields_cache
            for name in [name for name in cache if name != "type"]:
                del cache[name]
        return missing

    def of_type(self, identifier: str) -> Self:
        """Select the Instances of the Type with this identifier."""
        return self.filter(type__identifier=identifier)

    def in_state(self, *states: str) -> Self:
        return self.filter(state__in=states)

    def live(self) -> Self:
        return self.filter(state__in=LIVE)

    def terminal(self) -> Self:
        return self.filter(state__in=TERMINAL)

    def claimed(self) -> Self:
        """Select the Instances that a daemon holds: SCHEDULED, RUNNING or PAUSED."""
        return self.filter(state__in=CLAIMED)

    def finished(self) -> Self:
        return self.filter(state=State.FINISHED)

    def failed(self, *reasons: str) -> Self:
        """Select the FAILED Instances; with ``reasons``, only those FAILED for one of these."""
        selected = self.filter(state=State.FAILED)
        return selected.filter(reason__in=reasons) if reasons else selected

    def dead_letter(self) -> Self:
        """Select the dead letters: FAILED Instances that may succeed after a redrive."""
        return self.failed(*DEAD_LETTER)

    def selected(
        self,
        *,
        type: models.Model | None = None,
        state: str | None = None,
        reason: str = "",
        collection: str = "",
        identifier: str = "",
        created_by: str = "",
        ended_after: datetime | None = None,
        ended_before: datetime | None = None,
        longer_than: timedelta | None = None,
        now: datetime | None = None,
        tried_again: bool = False,
        daemons: Iterable[models.Model] | None = None,
    ) -> Self:
        """Select the rows that match all given values; None and "" set no condition.

        Every list of Instances uses this method. It selects the same rows as a plain ``filter()``
        on the columns, but by conditions that an index can answer, or else by a :class:`Search`.
        ``type`` is a Type, and ``daemons`` are rows of Daemon. ``longer_than`` selects Instances
        whose last attempt ran longer, or has run longer at ``now``.
        """
        if state:
            rows = self._filter_by_state(State(state), type, collection)
        else:
            rows = self._filter_by_lane(type, collection)
        if reason:
            rows = rows.filter(_FAILED, reason=reason)
        if identifier:
            rows = rows._filter_by_identifier(identifier, type)
        if daemons is not None:  # by the index atp_task_held
            task: Any = self.model._meta.get_field("task").related_model
            held = task.objects.using(self.db).filter(daemon__in=list(daemons))
            rows = rows.filter(pk__in=held.values("pk"))
        if ended_before is not None:
            # What ended by then was created by then: so the search begins there.
            rows = rows.filter(rows.created_between(None, ended_before))
        # These columns are in no index that has the order of the list.
        if created_by:
            rows = rows.searched(Q(created_by=created_by))
        if ended_after is not None:
            rows = rows.searched(Q(finished__gte=ended_after))
        if ended_before is not None:
            rows = rows.searched(Q(finished__lte=ended_before))
        if tried_again:
            rows = rows.searched(TRIED_AGAIN)
        if longer_than is not None and now is not None:
            rows = rows.searched(_ran_longer(longer_than, now))
        return rows

    def created_between(self, after: datetime | None, before: datetime | None) -> Q:
        """Return the condition that selects the rows created in a span, ends included.

        None leaves an end open. No index has ``created``. But the index on ``uuid`` finds a row
        that was created a little earlier, or later, than the span, and so the span becomes a range
        of primary keys, with which all indexes of lists end or begin. This takes one short query
        for each end.
        """
        rows, condition = self.model._base_manager.using(self.db), Q()
        if after is not None:
            condition &= Q(created__gte=after)
            time = max(after, _EARLIEST) - _OVERLAP
            earlier = rows.filter(uuid__lt=first_uuid7(time), created__lt=time).order_by("-uuid")
            key = earlier.values_list("pk", flat=True).first()
            condition &= Q() if key is None else Q(pk__gt=key)
        if before is not None:
            condition &= Q(created__lte=before)
            time = max(min(before, _LATEST), _EARLIEST) + _OVERLAP
            later = rows.filter(uuid__gte=first_uuid7(time), created__gt=time).order_by("uuid")
            key = later.values_list("pk", flat=True).first()
            condition &= Q() if key is None else Q(pk__lt=key)
        return condition

    def _filter_by_lane(self, type: models.Model | None, collection: str) -> Self:
        rows = self if type is None else self.filter(type=type)
        return rows.filter(collection=collection, collection__gt="") if collection else rows

    def _filter_by_state(self, state: State, type: models.Model | None, collection: str) -> Self:
        """Select the Instances in a state; with ``type`` or ``collection``, only those in it.

        Conditions for terminal Instances are on their own columns. Live Instances are selected by
        their Tasks, which have copies of the Type and the collection. Only the state of a claimed
        Instance is a condition on the Instance.
        """
        if state in TERMINAL:
            ended = self.filter(_FINISHED if state == State.FINISHED else _FAILED)
            return ended._filter_by_lane(type, collection)
        task: Any = self.model._meta.get_field("task").related_model
        tasks = task.objects.using(self.db)
        tasks = tasks.claimed() if state in CLAIMED else tasks.waiting()
        values = {"type": type, "collection": collection}
        tasks = tasks.filter(**{name: value for name, value in values.items() if value})
        rows = self.filter(pk__in=tasks.values("pk"))
        return rows.in_state(state) if state in CLAIMED else rows

    def _filter_by_identifier(self, identifier: str, type: models.Model | None) -> Self:
        rows = self.filter(identifier=identifier)
        if type is not None:
            return rows
        # The index on identifiers begins with the Type, so the query needs a condition on it.
        types: Any = self.model._meta.get_field("type").related_model
        return rows.filter(type__in=types.objects.using(self.db).values("pk"))

    def named(self, prefix: str) -> Self:
        """Select the rows whose uuid starts with these hexadecimal digits; hyphens are ignored."""
        digits = prefix.replace("-", "")
        first, last = (UUID(digits.ljust(32, filler)) for filler in "0f")
        if first == last:
            return self.filter(uuid=first)
        # The query has the condition twice: as a range for the index, and as text, at almost no
        # cost. With only the range, PostgreSQL would expect one row in two hundred to match, and
        # would search for the newest of these in the order of the primary key.
        text = str(first)[: len(digits) + sum(len(digits) >= n for n in (9, 13, 17, 21))]
        return self.filter(uuid__gte=first, uuid__lte=last, uuid__startswith=text)

    def named_between(self, head: str, tail: str) -> Self:
        """Select the rows whose uuid starts with ``head`` and ends with ``tail``.

        The pages show uuids in this shortened form.
        """
        return self.named(head).filter(uuid__endswith=tail)

    def newest_first(self) -> Self:
        return self.order_by("-pk")


class RowCount(Subquery):
    """A subquery that counts the rows of a query. Slice the query to limit the count."""

    template = "(SELECT count(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


class TaskQuerySet(models.QuerySet):
    def waiting(self) -> Self:
        return self.filter(daemon__isnull=True)

    def claimed(self) -> Self:
        return self.filter(daemon__isnull=False)

    def held_by(self, daemon: UUID) -> Self:
        """Select the Tasks that the daemon with this uuid holds."""
        return self.filter(daemon__uuid=daemon)

    def due(self, now: datetime) -> Self:
        """Select the waiting Tasks that are due at ``now``."""
        return self.waiting().filter(due_at__lte=now)

    def in_claiming_order(self) -> Self:
        """Order the Tasks of a lane by priority, then due time, then order of enqueueing (G8)."""
        return self.order_by(*CLAIMING_ORDER)


class LogQuerySet(models.QuerySet):
    def of_instance(self, instance: models.Model) -> Self:
        return self.filter(instance=instance).in_order()

    def about(self, subject: str) -> Self:
        """Select the records about one subject, such as a Type, a lane or a daemon.

        Records about an Instance are left out.
        """
        return self.filter(instance__isnull=True, subject=subject).in_order()

    def about_any(self) -> Self:
        """Select all records that are not about an Instance."""
        return self.filter(instance__isnull=True).in_order()

    def about_type(self, identifier: str) -> Self:
        """Select the records about a Type and about its lanes."""
        lanes = f"lane:{identifier}/"
        # A pattern is not enough: SQLite ignores case in patterns.
        head = Left("subject", len(lanes))
        is_lane = Q(subject__startswith=lanes, head=lanes)
        rows = self.about_any().alias(head=head)
        return rows.filter(Q(subject=f"type:{identifier}") | is_lane)

    def transitions(self) -> Self:
        return self.filter(kind__in=Event.values)

    def in_order(self) -> Self:
        return self.order_by("pk")


class DaemonQuerySet(models.QuerySet):
    def leased(self, now: datetime | Now) -> Self:
        """Select the daemons whose lease has not expired at ``now``.

        The lease ends at the later of the times in the daemon's row and its spare lease. A daemon
        whose lease is a file lock is always selected.
        """
        by_time = Q(lease_until__gt=now) | Q(spare_lease__until__gt=now)
        return self.filter(by_time | ~Q(lock=""))


def no_daemon_suffix() -> str:
    """Return " No daemon is alive.", to end a WaitTimeout's message; "" if a daemon has a lease."""
    daemons: Any = apps.get_model("atp", "Daemon").objects
    leased = daemons.using(settings.DATABASE).leased(Now())
    return "" if leased.exists() else f" {NO_DAEMON}."
