"""Selections, as QuerySet verbs that chain. They read; only the store writes."""

from uuid import UUID

from django.db import models
from django.db.models import Q

from .states import CLAIMED, DEAD_LETTER, LIVE, TERMINAL, State

# Within a lane (G8).
CLAIMING_ORDER = ("-priority", "due_at", "instance_id")
# Terminal rows, in the words of the partial indexes on them: the state itself
# is in no index, since it changes while the Instance is live.
_FINISHED = Q(finished__isnull=False, reason="")
_FAILED = Q(finished__isnull=False, reason__gt="")


class InstanceQuerySet(models.QuerySet):
    def of_type(self, identifier):
        """Instances of the Type of this identifier."""
        return self.filter(type__identifier=identifier)

    def in_state(self, *states):
        return self.filter(state__in=states)

    def live(self):
        return self.filter(state__in=LIVE)

    def terminal(self):
        return self.filter(state__in=TERMINAL)

    def claimed(self):
        """Held by a daemon: SCHEDULED, RUNNING or PAUSED."""
        return self.filter(state__in=CLAIMED)

    def finished(self):
        return self.filter(state=State.FINISHED)

    def failed(self, *reasons):
        """FAILED, for one of the given reasons if there are any."""
        selected = self.filter(state=State.FAILED)
        return selected.filter(reason__in=reasons) if reasons else selected

    def dead_letter(self):
        """FAILED in a way that a redrive may mend."""
        return self.failed(*DEAD_LETTER)

    def queued(self):
        """Live ones, found through Task: quick, however long the history is."""
        return self.filter(task__isnull=False)

    def selected(
        self, *, type=None, state=None, reason="", collection="", identifier="", created_by=""
    ):
        """Those that fit all that is given; what is None or empty selects nothing.

        This is the selection behind every list of Instances. It says the same
        as plain conditions on the columns would, in the words of an index.
        ``type`` is a Type.
        """
        rows = self if type is None else self.filter(type=type)
        if state:
            rows = rows.in_state(state).filter(_where(State(state)))
        if reason:
            rows = rows.failed(reason).filter(_FAILED)
        if collection:
            rows = rows.filter(collection=collection, collection__gt="")
        if identifier:
            rows = rows.filter(identifier=identifier)
            if type is None:
                # The index on identifiers begins with the Type.
                types = self.model._meta.get_field("type").related_model.objects
                rows = rows.filter(type__in=types.using(self.db).values("pk"))
        return rows.filter(created_by=created_by) if created_by else rows

    def named(self, prefix):
        """Those whose uuid starts with these hexadecimal digits; hyphens do not count."""
        digits = prefix.replace("-", "")
        first, last = (UUID(digits.ljust(32, filler)) for filler in "0f")
        return self.filter(uuid__gte=first, uuid__lte=last)

    def newest_first(self):
        return self.order_by("-pk")


def _where(state):
    """Where rows of a state are soon found: among the Tasks, or among the terminal ones."""
    if state in LIVE:
        return Q(task__isnull=False, task__daemon__isnull=state not in CLAIMED)
    return _FINISHED if state == State.FINISHED else _FAILED


class TaskQuerySet(models.QuerySet):
    def waiting(self):
        return self.filter(daemon__isnull=True)

    def claimed(self):
        return self.filter(daemon__isnull=False)

    def held_by(self, daemon):
        """Held by the daemon of this uuid."""
        return self.filter(daemon__uuid=daemon)

    def due(self, now):
        """Waiting, and not to be started later than ``now``."""
        return self.waiting().filter(due_at__lte=now)

    def in_claiming_order(self):
        """Within a lane: by priority, then due time, then order of enqueueing (G8)."""
        return self.order_by(*CLAIMING_ORDER)


class LogQuerySet(models.QuerySet):
    def of_instance(self, instance):
        return self.filter(instance=instance).in_order()

    def about(self, subject):
        """Records that concern a Type, a lane or a daemon instead of an Instance."""
        return self.filter(instance__isnull=True, subject=subject).in_order()

    def transitions(self):
        return self.exclude(event="")

    def in_order(self):
        return self.order_by("pk")


class DaemonQuerySet(models.QuerySet):
    def leased(self, now):
        """Those whose lease has not run out, by row or by file lock."""
        return self.filter(Q(lease_until__gt=now) | ~Q(lock=""))
