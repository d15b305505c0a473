"""Counting failures in their error groups."""

from collections import defaultdict

from django.db.models import Exists, OuterRef

from ....models import ErrorGroup, Failure, Instance
from ...protocol import Errors as ErrorsContract

_FACTS = ("type", "fingerprint", "version", "exception", "title")


class Errors(ErrorsContract):
    """The error groups of the queue; ``store`` is the store of the queue."""

    def __init__(self, store):
        self._store = store

    def count(self, *, limit=2_000):
        if not self._store.rows(Failure).exists():
            return 0
        with self._store.atomic():
            return self._count(limit)

    def _count(self, limit):
        """Lock failures and then their groups, in key order, leaving out those that are locked.

        New groups are inserted first, in key order and by one statement. If two daemons insert the
        same group, the second waits for the first, which waits for nobody.
        """
        failures = self._store.rows(Failure).select_for_update(skip_locked=True)
        of_group = defaultdict(list)
        for failure in failures.order_by("pk")[:limit]:
            of_group[failure.group].append(failure)
        if not of_group:
            return 0
        groups = self._store.rows(ErrorGroup)
        known = set(groups.filter(pk__in=of_group).values_list("pk", flat=True))
        new = [_group(of_group[key]) for key in sorted(of_group.keys() - known)]
        groups.bulk_create(new, ignore_conflicts=True)
        locked = groups.filter(pk__in=of_group).select_for_update(skip_locked=True).order_by("pk")
        counted = []
        for group in locked:
            self._add(group, of_group[group.pk])
            counted += [failure.pk for failure in of_group[group.pk]]
        self._store.rows(Failure).filter(pk__in=counted).delete()
        return len(counted)

    def _add(self, group, failures):
        first = min(failures, key=lambda failure: failure.time)
        last = max(failures, key=lambda failure: failure.time)
        group.count += len(failures)
        if first.time < group.first_seen:
            group.first_seen, group.first_instance = first.time, first.instance
        if last.time >= group.last_seen:
            group.last_seen, group.last_instance = last.time, last.instance
        if group.muted_until is not None and last.time >= group.muted_until:
            group.muted_by, group.muted_until = "", None
        group.save(using=self._store.alias)

    def trim(self, *, before, limit=500):
        failed = self._store.rows(Instance).filter(error=OuterRef("pk")).order_by()
        with self._store.atomic():
            old = self._store.rows(ErrorGroup).filter(last_seen__lt=before, note="", muted_by="")
            free = old.filter(~Exists(failed)).select_for_update(skip_locked=True)
            keys = [group.pk for group in free.order_by("pk")[:limit]]
            self._store.rows(ErrorGroup).filter(pk__in=keys).delete()
        return len(keys)

    def mute(self, group, *, by, until=None):
        rows = self._store.rows(ErrorGroup).filter(pk=group.pk)
        rows.update(muted_by=by, muted_until=until)

    def annotate(self, group, note):
        self._store.rows(ErrorGroup).filter(pk=group.pk).update(note=note)


def _group(failures):
    """Return the row of a new group whose count is still 0."""
    first = min(failures, key=lambda failure: failure.time)
    facts = {name: getattr(first, name) for name in _FACTS}
    seen = {"first_seen": first.time, "last_seen": first.time}
    instances = {"first_instance": first.instance, "last_instance": first.instance}
    return ErrorGroup(pk=first.group, count=0, **facts, **seen, **instances)
