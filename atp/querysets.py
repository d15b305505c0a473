"""Selections, as QuerySet verbs that chain. They read; only the store writes."""

from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Left

from .states import CLAIMED, DEAD_LETTER, LIVE, TERMINAL, State

# Within a lane (G8).
CLAIMING_ORDER = ("-priority", "due_at", "instance_id")
# Lane by lane: the order of the index on what waits.
LANES_ORDER = ("type_id", "collection", *CLAIMING_ORDER)
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

    def selected(
        self, *, type=None, state=None, reason="", collection="", identifier="", created_by=""
    ):
        """Those that fit all that is given; what is None or empty is not looked at.

        This is the selection behind every list of Instances. It says the same
        as plain conditions on the columns would, in the words of an index.
        ``type`` is a Type.
        """
        rows = self._in(State(state), type, collection) if state else self._of(type, collection)
        if reason:
            rows = rows.filter(_FAILED, reason=reason)
        if identifier:
            rows = rows._identified(identifier, type)
        return rows.filter(created_by=created_by) if created_by else rows

    def _of(self, type, collection):
        rows = self if type is None else self.filter(type=type)
        return rows.filter(collection=collection, collection__gt="") if collection else rows

    def _in(self, state, type, collection):
        """Those in a state: among what has ended, or among the Tasks.

        A Task has copies of what never changes, so of what is live all but the
        state of a claimed one is said there.
        """
        if state in TERMINAL:
            ended = self.filter(_FINISHED if state == State.FINISHED else _FAILED)
            return ended._of(type, collection)
        tasks = self.model._meta.get_field("task").related_model.objects.using(self.db)
        tasks = tasks.claimed() if state in CLAIMED else tasks.waiting()
        given = {"type": type, "collection": collection}
        tasks = tasks.filter(**{name: value for name, value in given.items() if value})
        rows = self.filter(pk__in=tasks.values("pk"))
        return rows.in_state(state) if state in CLAIMED else rows

    def _identified(self, identifier, type):
        rows = self.filter(identifier=identifier)
        if type is not None:
            return rows
        # The index on identifiers begins with the Type.
        types = self.model._meta.get_field("type").related_model.objects.using(self.db)
        return rows.filter(type__in=types.values("pk"))

    def named(self, prefix):
        """Those whose uuid starts with these hexadecimal digits; hyphens do not count."""
        digits = prefix.replace("-", "")
        first, last = (UUID(digits.ljust(32, filler)) for filler in "0f")
        if first == last:
            return self.filter(uuid=first)
        # Said once for the index and once as text, where it costs next to nothing:
        # PostgreSQL expects every range of uuids to hold one in two hundred, and
        # would look for the newest of so many in the order of the primary key.
        text = str(first)[: len(digits) + sum(len(digits) >= n for n in (9, 13, 17, 21))]
        return self.filter(uuid__gte=first, uuid__lte=last, uuid__startswith=text)

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
        return self.order_by(*CLAIMING_ORDER)


class LogQuerySet(models.QuerySet):
    def of_instance(self, instance):
        return self.filter(instance=instance).in_order()

    def about(self, subject):
        """Records that concern a Type, a lane or a daemon instead of an Instance."""
        return self.filter(instance__isnull=True, subject=subject).in_order()

    def about_any(self):
        """Records that concern no Instance."""
        return self.filter(instance__isnull=True).in_order()

    def about_type(self, identifier):
        """Records that concern a Type, or a lane of it."""
        lanes = f"lane:{identifier}/"
        # Not as a pattern: SQLite takes no notice of case in those.
        head = Left("subject", len(lanes))
        is_lane = Q(subject__startswith=lanes, head=lanes)
        found = self.about_any().alias(head=head)
        return found.filter(Q(subject=f"type:{identifier}") | is_lane)

    def transitions(self):
        return self.exclude(event="")

    def in_order(self):
        return self.order_by("pk")


class DaemonQuerySet(models.QuerySet):
    def leased(self, now):
        """Those whose lease has not run out, by row or by file lock."""
        return self.filter(Q(lease_until__gt=now) | ~Q(lock=""))
