"""The fill of Types and lanes: waiting Tasks compared with ``max_waiting`` and ``max_wait``."""

import logging
from contextlib import contextmanager, nullcontext
from datetime import timedelta

from django.db.models import Count, Min, Q, Sum

from .... import messages
from ....models import (
    FAILURE_COLUMNS,
    Instance,
    Kind,
    Limit,
    LogRecord,
    Span,
    Statistic,
    Task,
    Type,
    group_renamed_types,
)
from ...facts import LOW_SHARE, Fill, Scope
from ..base import ORMBase

BOUNDING = Q(max_waiting__isnull=False) | Q(max_wait__isnull=False)
# Late Tasks, and Instances that ended lately, are counted up to this number.
COUNTED = 10_000


class Filling(ORMBase):
    def _looking(self):
        """Return a context for reads: inside a caller's transaction, one that may write.

        On SQLite, a transaction that has only read may fail when it writes later.
        """
        return self.atomic() if self.connection.in_atomic_block else nullcontext()

    def bounded(self):
        rows = self.rows(Limit).filter(BOUNDING).order_by()
        # One row for each Type, however many of its lanes have a limit.
        lanes = rows.values_list("type__identifier").annotate(lanes=Count("collection"))
        with self._looking():
            return {identifier: bool(count) for identifier, count in lanes}

    def fills(self, type, collections, declared):
        collections = list(collections)
        names = [_subject(type, collection) for collection in collections]
        with self._looking():
            rows = {row.subject: row for row in self.rows(Limit).filter(subject__in=names)}
            return {
                collection: self._fill(type, collection, rows.get(name), declared)
                for collection, name in zip(collections, names, strict=True)
            }

    def _fill(self, type, collection, row, declared):
        """Return the :class:`Fill` of one scope; ``row`` is its row of Limit, or None."""
        if row is not None:
            max_waiting, max_wait = row.max_waiting, row.max_wait
        elif collection is None:
            max_waiting, max_wait = declared.get("max_waiting"), declared.get("max_wait")
        else:
            max_waiting = max_wait = None
        if max_waiting is None and max_wait is None:
            return Fill(type=type, collection=collection)
        tasks = self.rows(Task).waiting().filter(type__identifier=type)
        if collection is not None:
            tasks = tasks.filter(collection=collection)
        waiting, oldest, late = 0, None, 0
        if max_waiting is not None:
            waiting = tasks[: 2 * max_waiting + 1].count()
        if max_waiting is None or waiting >= LOW_SHARE * max_waiting:
            now = self.now()
            first = tasks.filter(due_at__lte=now).aggregate(first=Min("due_at"))["first"]
            oldest = None if first is None else now - first
            if max_wait is not None and oldest is not None and oldest > max_wait:
                late = tasks.filter(due_at__lt=now - max_wait)[:COUNTED].count()
        return Fill(
            type=type,
            collection=collection,
            max_waiting=max_waiting,
            max_wait=max_wait,
            waiting=waiting,
            oldest=oldest,
            late=late,
        )

    def taken(self, type, submissions):
        names = {each.identifier for each in submissions if each.identifier is not None}
        keys = {each.unique for each in submissions if each.unique is not None}
        named, live = set(), set()
        if not names and not keys:
            return set()
        own = self.rows(Type).filter(identifier=type).values_list("pk", flat=True).first()
        family = group_renamed_types(self.rows(Type)).get(own, {own})
        if names:
            found = self.rows(Instance).filter(type__in=family, identifier__in=names)
            named = set(found.values_list("identifier", flat=True))
        if keys:
            found = self.rows(Task).filter(type__in=family, unique_key__in=keys)
            live = set(found.values_list("unique_key", flat=True))
        return {
            number
            for number, each in enumerate(submissions)
            if each.identifier in named or each.unique in live
        }

    def drain_rate(self, type, seconds):
        now = self.now()
        since = now - timedelta(seconds=seconds)
        if self.rows(Type).filter(identifier=type, retention__lt=now - since).exists():
            # They do not stay for so long.
            return self._counted_rate(type, since, now)
        ended = self.rows(Instance).of_type(type).filter(finished__gte=since)
        count = ended[:COUNTED].count()
        if count == COUNTED:
            # There may be more: how long the newest took.
            newest = ended.order_by("-finished").values_list("finished", flat=True)
            # Some may have been removed meanwhile.
            for first in newest[COUNTED - 1 : COUNTED]:
                seconds = max((now - first).total_seconds(), 0.001)
        return count / seconds

    def _counted_rate(self, type, since, now):
        """Return the ends a second as the daemons have counted them, by minutes."""
        begin = since.replace(second=0, microsecond=0)
        rows = self.rows(Statistic).filter(span=Span.MINUTE, type=type, start__gte=begin)
        sums = rows.aggregate(
            **{f"sum_{name}": Sum(name) for name in ("finished", *FAILURE_COLUMNS)}
        )
        return float(sum(filter(None, sums.values()))) / (now - begin).total_seconds()

    @contextmanager
    def enqueueing_alone(self, registration):
        no_key = self.connection.features.has_select_for_no_key_update
        # Daemons and other enqueues only keep others from unregistering the Type. So they do not
        # wait for this lock, which needs a right on the table, unlike an advisory lock.
        type = self.rows(Type).select_for_update(no_key=no_key)
        keys = type.filter(identifier=registration.identifier).values_list("pk")
        with self.atomic():
            if not list(keys):
                self.register([registration], update=False)
                list(keys.all())
            yield

    def log_full(self, fill, count, *, seconds, who=""):
        with self.atomic():
            now = self.now()
            subject = _subject(fill.type, fill.collection)[:255]
            records = self.rows(LogRecord).filter(instance__isnull=True, subject=subject)
            if records.filter(kind=Kind.FULL, time__gt=now - timedelta(seconds=seconds)).exists():
                return False
            self.log(
                Kind.FULL,
                messages.queue_full(count, fill.waiting),
                subject=subject,
                time=now,
                who=who,
                detail=str(count),
                level=logging.WARNING,
            )
        return True


def _subject(type, collection):
    return Scope(Type(identifier=type), collection).subject
