"""Removing terminal Instances, in the portable store (RFC 14's retention)."""

import logging
import posixpath
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.core.files.storage import FileSystemStorage, Storage, storages
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.signals import post_delete, pre_delete

from ... import messages
from ...conf import Defaults, settings
from ...models import (
    Edge,
    Failing,
    Inputs,
    Instance,
    Kind,
    LogRecord,
    Node,
    Response,
    Step,
    Task,
    Type,
    Undo,
)
from ...querysets import InstanceQuerySet
from ...text import as_timedelta
from ..facts import Marks
from .base import Part

logger = logging.getLogger("atp.store")

# The rows that belong to an Instance and are removed with it.
_CHILDREN = (Inputs, Response, Step, LogRecord)
_OWN = {*_CHILDREN, Task, Node}


class Over(NamedTuple):
    """Instances of one Type that are kept no longer: they ended before a certain time.

    ``type`` is the key of the Type. ``reasons`` "" selects all of them, "none" those that FINISHED,
    "some" those that FAILED.
    """

    type: int
    before: datetime
    reasons: str = ""


class Removal(Part):
    """Removing ended Instances."""

    def purge(
        self,
        *,
        type: str | None = None,
        instances: Sequence[int] | None = None,
        limit: int = 500,
        who: str = "",
        marks: Marks | None = None,
    ) -> int:
        if instances is not None:
            given = self.rows(Instance).filter(pk__in=instances)
            return self._remove(given.filter(~self._in_graph()), limit, who)
        marks = Marks() if marks is None else marks
        marks.passes_kept = False
        types = self.rows(Type).filter(retention__isnull=False)
        if type is not None:
            types = types.filter(identifier=type)
        now, removed = self.store.now(), 0
        for row, oldest in self._with_ended(types, marks):
            for over in _overs(row, now):
                if removed < limit and (oldest is None or oldest < over.before):
                    removed += self._remove_over(over, limit - removed, who, marks)
        return removed

    def _passed(self, marks: Marks, over: Over, until: Any, *, is_full: bool) -> None:
        """Note the last end that a purge has come to.

        If it has found as many as it may remove, and keeps some, then others may lie behind them.
        """
        since = marks.get((over.type, over.reasons))
        marks[over.type, over.reasons] = until
        marks.passes_kept |= is_full and until != since

    def _with_ended(
        self, types: QuerySet[Type], marks: Marks
    ) -> list[tuple[Type, datetime | None]]:
        """Return pairs: a Type that may have Instances to remove, and when its first one ended.

        The time is None if ``marks`` say how far a purge has come: to find the first end, the
        database would walk over everything that the purge has removed.
        """
        marked = {type for type, _ in marks}
        ended = self.rows(Instance).filter(type=OuterRef("pk"), finished__isnull=False)
        oldest = ended.order_by("finished").values("finished")[:1]
        others = types.exclude(pk__in=marked).annotate(oldest=Subquery(oldest))
        found = [(row, row.oldest) for row in others.filter(oldest__isnull=False)]
        return found + [(row, None) for row in (types.filter(pk__in=marked) if marked else ())]

    def _remove_over(self, over: Over, limit: int, who: str, marks: Marks) -> int:
        """Remove Instances that are kept no longer, oldest first; returns how many."""
        return self._remove(self._selected(over), limit, who)

    def _selected(self, over: Over) -> InstanceQuerySet:
        of_reasons = {"": Q(), "none": Q(reason=""), "some": Q(reason__gt="")}
        found = self.rows(Instance).filter(type=over.type, finished__lt=over.before)
        return found.filter(~self._in_graph(), of_reasons[over.reasons]).order_by("finished")

    def _in_graph(self) -> Exists:
        """Return a condition: the Instance is a node. The whole graph is removed at once."""
        return Exists(self.rows(Node).filter(pk=OuterRef("pk")).order_by())

    def remove_nodes(self, selected: InstanceQuerySet, limit: int) -> int:
        """Remove up to ``limit`` Instances of a graph that is being removed; returns how many."""
        return self._remove(selected, limit, "", of_graph=True)

    def _remove(
        self, selected: InstanceQuerySet, limit: int, who: str, *, of_graph: bool = False
    ) -> int:
        count = 0
        stuck: set[int] = set()
        while count < limit:
            rest = selected.exclude(pk__in=stuck)
            tried, kept = self._remove_chunk(rest, limit - count, who, of_graph)
            count += tried - len(kept)
            stuck |= kept
            if not kept:
                break
        return count

    def _remove_chunk(
        self, selected: InstanceQuerySet, limit: int, who: str, of_graph: bool
    ) -> tuple[int, set[int]]:
        """Remove up to ``limit`` Instances; returns how many it tried, and those that it kept."""
        with self.store.atomic():
            # A redrive locks the Instance too, so one of the two comes first.
            locked = selected.terminal().select_for_update(skip_locked=True)
            keys = [instance.pk for instance in locked.only("pk")[:limit]]
            kept = self._in_use(keys)
            kept |= self._remove_files([key for key in keys if key not in kept])
            going = [key for key in keys if key not in kept]
            removed = self.rows(Instance).filter(pk__in=going)
            if who:
                self._log_removal(removed, who)
            if of_graph:
                self._remove_node_rows(going)
            removed.delete()
        return len(keys), kept

    def _remove_node_rows(self, keys: Collection[int]) -> None:
        self.rows(Edge).filter(Q(upstream__in=keys) | Q(downstream__in=keys)).delete()
        self.rows(Failing).filter(pk__in=keys).delete()
        self.rows(Undo).filter(pk__in=keys).delete()
        self.rows(Node).filter(pk__in=keys).delete()

    def _in_use(self, keys: Collection[int]) -> set[int]:
        """Return the keys of Instances with a child row that another session has locked.

        Locks the child rows that are free, so that removing them waits for nobody.
        """
        if not keys or not self.store.connection.features.has_select_for_update_skip_locked:
            return set()
        found: set[int] = set()
        for model in _CHILDREN:
            own = self.rows(model).filter(instance__in=keys)
            free = {row.pk for row in own.select_for_update(skip_locked=True).only("pk")}
            found |= {key for pk, key in own.values_list("pk", "instance") if pk not in free}
        return found

    def remove_unkept(self, keys: Collection[int]) -> None:
        """Remove Instances that have just FINISHED and are not kept, except those with files.

        Files are removed before their rows, and only after the end is committed: the next purge
        removes both. It also removes Instances of which another session has locked something.
        """
        stored = self.rows(Response).filter(Q(file__gt="") | ~Q(files=[]), pk__in=keys)
        left = set(stored.values_list("pk", flat=True))
        left |= self._in_use([key for key in keys if key not in left])
        self.rows(Instance).filter(pk__in=[key for key in keys if key not in left]).delete()

    def _log_removal(self, removed: InstanceQuerySet, who: str) -> None:
        """Log for each Type which Instances are removed: their own logs are removed with them."""
        uuids: dict[str, list[str]] = {}
        for identifier, uuid in removed.values_list("type__identifier", "uuid").order_by("pk"):
            uuids.setdefault(identifier, []).append(str(uuid))
        for identifier, gone in uuids.items():
            self.store.log(
                Kind.REMOVED,
                messages.instances_removed(gone),
                subject=f"type:{identifier}",
                time=self.store.now(),
                who=who,
                detail=str(len(gone)),
            )

    def _remove_files(self, keys: Iterable[int]) -> set[int]:
        """Remove stored files before the rows that name them, so that none is forgotten.

        Returns the keys of the Instances whose files could not be removed.
        """
        storage = storages[settings.STORAGE]
        kept: dict[int, Exception] = {}
        for response in self.rows(Response).filter(pk__in=keys):
            try:
                for path in response.stored_paths:
                    storage.delete(path)
                    _remove_folder(storage, posixpath.dirname(path))
            except Exception as error:  # storages have errors of their own
                kept[response.pk] = error
        if kept:
            first, error = next(iter(kept.items()))
            told = "files of %d Instances cannot be removed, the first is %s: %s"
            logger.warning(told, len(kept), first, error)
        return set(kept)


def _overs(row: Type, now: datetime) -> Iterator[Over]:
    """Yield each :class:`Over` of a Type with a retention."""
    if row.retention:
        yield Over(row.pk, now - row.retention)
        return
    yield Over(row.pk, now, "none")
    kept = failures_kept()
    if kept is not None:
        yield Over(row.pk, now - kept, "some")


def failures_kept() -> timedelta | None:
    """Return how long a FAILED Instance is kept where FINISHED ones are not; None is for ever.

    It is the setting RETENTION, or the default where that is 0: an operator must be able to see a
    failure.
    """
    kept = as_timedelta(settings.RETENTION)
    return as_timedelta(Defaults.RETENTION) if kept == timedelta(0) else kept


def is_followed() -> bool:
    """Return whether rows or signal handlers of an application depend on Instances.

    Then Django must do the removal, since it knows of them.
    """
    models = {Instance, *_CHILDREN}
    return any(
        relation.related_model not in _OWN
        for model in models
        for relation in model._meta.related_objects
    ) or any(
        signal.has_listeners(model) for model in models for signal in (pre_delete, post_delete)
    )


def _remove_folder(storage: Storage, folder: str) -> None:
    """Remove the folder of an Instance if it is empty. Only file systems have folders."""
    if not isinstance(storage, FileSystemStorage):
        return
    try:
        storage.delete(folder)
    except OSError:
        pass  # not empty yet
