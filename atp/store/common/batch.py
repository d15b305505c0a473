"""The rows of a batch of moves: loaded together, changed in memory, written once."""

from collections import defaultdict

from ...models import HOOKED, Failure, Instance, LogRecord, Response, Statistic, Task
from ...states import Event
from ..counts import COUNTED, Counts
from ..failures import failure
from .unique import Keys

# At least this many rows with the same new values are updated by one statement of their own. A
# statement with values for each row costs ten times as much for each row.
ALIKE = 5
CHUNK = 2000


class Batch:
    """The Instances and Tasks of a batch by key, and the changes that are still to be written.

    Task rows are locked in the order of their keys, so that overlapping batches cannot deadlock.
    """

    def __init__(self, store, now):
        self._store = store
        self._now = now
        self.instances = {}
        self.tasks = {}
        self._changed_fields = set()
        self._touched = {}
        self._created = {}
        self._freed = {}
        self._deleted = set()
        self._logs = []
        self._counts = Counts()
        self._failures = []
        self._responses = {}
        self._unkept = set()
        # The Instances that have ended and must be settled, and the signature of whoever ended
        # them.
        self._ended, self._who = {}, ""
        self.upstreams = self.keys = None

    def load(self, keys, *, waits=True, revives=False):
        """Lock and read the Instances of these keys, and their Tasks.

        With ``waits=False``, Instances are left out if another session has locked them, their Task
        or their node. An Instance that has ended may be redriven only with ``revives``.
        """
        if waits:
            self._wait_for_nodes(keys)
        tasks = self._store.rows(Task).select_for_update(skip_locked=not waits)
        self.tasks.update((task.pk, task) for task in tasks.filter(pk__in=keys).order_by("pk"))
        self._lock_nodes(waits)
        # The Task row of a live Instance guards it. An Instance that has ended has no Task.
        without = [key for key in keys if key not in self.tasks]
        instances = self._store.rows(Instance).select_related("type")
        if not waits:
            free = instances.select_for_update(of=("self",), skip_locked=True, no_key=True)
            self.instances.update(free.order_by("pk").in_bulk(list(self.tasks)))
            return
        self.instances.update(instances.in_bulk([k for k in keys if k in self.tasks]))
        if without:
            locked = instances.select_for_update(of=("self",)).filter(pk__in=without)
            self.instances.update((i.pk, i) for i in locked.order_by("pk"))
            if revives:
                self.keys = Keys(self._store, locked)
                self.upstreams = self._store.graphs.upstreams(without)

    def _wait_for_nodes(self, keys):
        """Lock the nodes of live Instances before their Tasks: the order that all writers keep."""
        if not self._store.connection.features.has_select_for_update:
            return
        tasks = self._store.rows(Task).filter(pk__in=keys, waits__gte=0)
        nodes = list(tasks.values_list("pk", flat=True))
        if nodes:
            self._store.graphs.lock(nodes)

    def _lock_nodes(self, waits):
        """Lock the nodes of the loaded Tasks; drop the Tasks whose node cannot be locked."""
        nodes = [t.pk for t in self.tasks.values() if t.waits is not None and t.waits >= 0]
        if nodes:
            locked = self._store.graphs.lock(nodes, waits=waits)
            for key in () if waits else set(nodes) - locked:
                del self.tasks[key]

    def set(self, instance, **values):
        """Set columns of an Instance."""
        for name, value in values.items():
            setattr(instance, name, value)
            self._changed_fields.add(name)
        self._touched[instance.pk] = instance

    def is_settled(self, instance):
        """Return whether the end of this live Instance affects its graph or triggers hooks."""
        task = self.tasks.get(instance.pk)
        return task is not None and task.waits is not None

    def delete_task(self, instance, who=""):
        """Delete the Task of an Instance that has ended."""
        if self.is_settled(instance):
            self._ended[instance.pk], self._who = instance.state, who
        self._deleted.add(instance.pk)
        self._freed.pop(instance.pk, None)
        self._created.pop(instance.pk, None)
        self.tasks.pop(instance.pk, None)

    def free_task(self, task):
        """Release a Task from its holder, so that it waits again."""
        task.daemon = None
        self._freed[task.pk] = task

    def create_task(self, instance):
        """Give an Instance a Task: due now, unless it is a node and waits for others or a time."""
        upstreams = self.upstreams
        waits = None if upstreams is None else upstreams.waits(instance.pk)
        due = self._now if upstreams is None else upstreams.due(instance, self._now)
        if waits is not None:
            upstreams.revive(instance.pk)
        elif instance.is_hooked:
            waits = HOOKED
        task = Task(
            instance=instance,
            type_id=instance.type_id,
            collection=instance.collection,
            priority=instance.priority,
            due_at=due,
            attempt=instance.attempt,
            waits=waits,
            unique_key=None if self.keys is None else self.keys.take(instance),
        )
        self._created[instance.pk] = self.tasks[instance.pk] = task

    def respond(self, instance, response):
        """Keep the response of an Instance."""
        self._responses[instance.pk] = response

    def remove(self, instance):
        """Remove a FINISHED Instance that is not kept, unless a lock or stored files prevent it."""
        self._unkept.add(instance.pk)

    def log(self, instance, move, time, *, is_counted):
        """Log a move; with ``is_counted``, count it in Statistic too."""
        is_counted = is_counted and move.event in COUNTED
        if is_counted:
            is_start = move.event == Event.START
            began = None if is_start else instance.started
            reason = str(move.reason)
            self._counts.add(instance.type.identifier, move.event, time, reason=reason, began=began)
        self._logs.append(
            LogRecord(
                instance=instance,
                time=time,
                kind=move.event,
                state=instance.state,
                attempt=instance.attempt,
                level=move.level,
                who=move.who,
                message=move.message,
                detail=move.detail,
                counted=is_counted or None,
            )
        )

    def count_failure(self, instance, failed, time):
        """Store a dead letter as a Failure, which a chore adds to its error group later."""
        self._failures.append(failure(instance.uuid, failed, time))

    def write(self, *, settles=True):
        """Write all applied changes; with ``settles``, also settle the ended Instances."""
        store = self._store
        if self._touched:
            self._update(Instance, self._touched, sorted(self._changed_fields))
        if self._freed:
            self._update(Task, self._freed, ["daemon", "due_at", "request", "start_before"])
        if self._deleted:
            store.rows(Task).filter(pk__in=self._deleted).delete()
        if self._created:
            store.rows(Task).bulk_create(self._created.values())
        if self._responses:
            self._write_responses()
        store.rows(LogRecord).bulk_create(self._logs)
        if self._counts:
            store.rows(Statistic).bulk_create(self._counts.rows())
        if self._failures:
            store.rows(Failure).bulk_create(self._failures)
        if self._unkept:
            store.remove_unkept(self._unkept)
        if self._freed or self._created:
            store.tell()
        if self.upstreams is not None:
            self.upstreams.write()
        if self._ended and settles:
            store.graphs.settle(self._ended, who=self._who)

    def _update(self, model, rows, fields):
        """Update these columns of the given rows, a dict by key."""
        alike, others = defaultdict(list), []
        for key, row in rows.items():
            alike[tuple(getattr(row, field) for field in fields)].append(key)
        for values, keys in alike.items():
            if len(keys) < ALIKE:
                others += [rows[key] for key in keys]
                continue
            for start in range(0, len(keys), CHUNK):
                some = self._store.rows(model).filter(pk__in=keys[start : start + CHUNK])
                some.update(**dict(zip(fields, values, strict=True)))
        if others:
            self._store.rows(model).bulk_update(others, fields, batch_size=200)

    def _write_responses(self):
        fields = ["content_type", "data", "file", "size"]
        self._store.rows(Response).bulk_create(
            [
                Response(
                    instance_id=key,
                    **{name: getattr(response, name) for name in fields},
                )
                for key, response in self._responses.items()
            ],
            update_conflicts=True,
            unique_fields=["instance"],
            update_fields=fields,
        )
