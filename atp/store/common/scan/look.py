"""What the parts of a scan share: a delayed clock, the daemons, and names for findings."""

from datetime import timedelta

from django.db.models import Max, Q
from django.utils.functional import cached_property

from ....conf import settings
from ....models import Daemon, Downstream, Gate, Instance, Limit, LogRecord, Task, Type
from ..control.gates import Closed
from ..control.limits import LIMITING

# The maximum number of findings of each kind of trouble at a time.
MOST = 100


class Look:
    """One look at the queue; ``who`` signs each repair, and ``repair`` allows repairs.

    The look uses a delayed clock, as ATF does. Trouble that lasts since ``then`` is real; newer
    changes may still be under way.
    """

    def __init__(self, store, who, *, repair, now=None):
        self.store = store
        self.rows = store.rows
        self.who = who
        self.repair = repair
        self.now = now or store.now()
        self.delay = timedelta(seconds=max(settings.SCAN_AFTER, settings.LEASE))
        self.then = self.now - self.delay
        daemons = list(self.rows(Daemon).order_by("pk"))
        self.lost = [row for row in daemons if store.is_over(row, self.now)]
        self.alive = [row for row in daemons if row not in self.lost]

    @cached_property
    def closed(self):
        """The lanes that gates, limits or downstreams keep from being claimed, or did recently.

        A Task that waits for room is no finding, however long it has been due.
        """
        shut = self.rows(Gate).filter(Q(until__isnull=True) | Q(until__gt=self.then))
        limits = self.rows(Limit).filter(LIMITING | Q(since__gt=self.then))
        closed = Closed(frozenset(shut.values_list("type", "collection"))).with_limits(limits)
        calm = self.rows(Downstream).filter(state="closed", since__lte=self.then)
        calling = self.rows(Type).exclude(downstream="")
        return closed.with_types(
            calling.exclude(downstream__in=calm.values("name")).values_list("pk", flat=True)
        )

    @property
    def settled(self):
        """The daemons that are alive and have run for long."""
        return [row for row in self.alive if row.started <= self.then]

    def last_transitions(self, keys):
        """Return, by Instance, the time of its last transition and the key of that LogRecord."""
        logs = self.rows(LogRecord).filter(instance__in=keys).transitions().order_by()
        last = logs.values("instance").annotate(time=Max("time"), record=Max("pk"))
        return {row["instance"]: (row["time"], row["record"]) for row in last}

    def may_run(self, keys):
        """Return the Instances that a daemon may be running: it says so, or they changed lately."""
        last = self.last_transitions(keys)
        fresh = {key for key, (time, _) in last.items() if time > self.then}
        workers = [worker for row in self.alive for worker in _dicts(row.workers)]
        names = {str(worker.get("instance")) for worker in workers}
        uuids = dict(self.rows(Instance).filter(pk__in=keys).values_list("pk", "uuid"))
        return fresh | {key for key, uuid in uuids.items() if str(uuid) in names}

    def named(self, keys):
        """Return uuid and Type of each Instance, by key; without an Instance, the Task's Type."""
        tasks = self.rows(Task).filter(pk__in=keys).values_list("pk", "type__identifier")
        instances = self.rows(Instance).filter(pk__in=keys)
        found = instances.values_list("pk", "uuid", "type__identifier")
        named = dict.fromkeys(keys, (None, "")) | {key: (None, type) for key, type in tasks}
        return named | {key: (uuid, type) for key, uuid, type in found}


def _dicts(listed):
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
