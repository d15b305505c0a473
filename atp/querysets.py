"""Selections, as QuerySet verbs that chain. They read; only the store writes."""

from uuid import UUID

from django.db import models
from django.db.models import Q

from .states import CLAIMED, DEAD_LETTER, LIVE, TERMINAL, State


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

    def named(self, prefix):
        """Those whose uuid starts with these hexadecimal digits; hyphens do not count."""
        digits = prefix.replace("-", "")
        first, last = (UUID(digits.ljust(32, filler)) for filler in "0f")
        return self.filter(uuid__gte=first, uuid__lte=last)

    def newest_first(self):
        return self.order_by("-pk")


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
        return self.order_by("-priority", "due_at", "instance_id")


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
