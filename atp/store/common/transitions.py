"""Applying events to rows by the table of states.py, guarded and fenced."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from ... import messages, states
from ...commands import CANCEL
from ...models import HOOKED, Failure, Instance, Kind, LogRecord, Response, Statistic, Task
from ...states import DEAD_LETTER, Actor, Event, Reason, Row, State, Transition
from .. import failures
from ..counts import COUNTED, Counts
from ..failures import failure
from ..values import Failed, Move, ResponseData
from .incompatible import Misfits, is_misfit
from .unique import Keys

if TYPE_CHECKING:
    from .store import ORMStore

# The rows of a batch of moves: loaded together, changed in memory, written once.

# At least this many rows with the same new values are updated by one statement of their own. A
# statement with values for each row costs ten times as much for each row.
ALIKE = 5
CHUNK = 2000


class Batch:
    """The Instances and Tasks of a batch by key, and the changes that are still to be written.

    Task rows are locked in the order of their keys, so that overlapping batches cannot deadlock.
    """

    def __init__(self, store: "ORMStore", now: datetime) -> None:
        self._store = store
        self._now = now
        self.instances: dict[int, Instance] = {}
        self.tasks: dict[int, Task] = {}
        self._changed_fields: set[str] = set()
        self._touched: dict[int, Instance] = {}
        self._created: dict[int, Task] = {}
        self._freed: dict[int, Task] = {}
        self._deleted: set[int] = set()
        self._logs: list[LogRecord] = []
        self._counts = Counts()
        self._failures: list[Failure] = []
        self._responses: dict[int, ResponseData] = {}
        self._unkept: set[int] = set()
        # The Instances that have ended and must be settled, and the signature of whoever ended
        # them.
        self._ended: dict[int, Any] = {}
        self._who = ""
        self.upstreams: Any = None  # Upstreams of graphs.py, a module above this one
        self.keys: Keys | None = None

    def load(self, keys: Collection[int], *, waits: bool = True, revives: bool = False) -> None:
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

    def _wait_for_nodes(self, keys: Collection[int]) -> None:
        """Lock the nodes of live Instances before their Tasks: the order that all writers keep."""
        if not self._store.connection.features.has_select_for_update:
            return
        tasks = self._store.rows(Task).filter(pk__in=keys, waits__gte=0)
        nodes = list(tasks.values_list("pk", flat=True))
        if nodes:
            self._store.graph_ends.lock(nodes)

    def _lock_nodes(self, waits: bool) -> None:
        """Lock the nodes of the loaded Tasks; drop the Tasks whose node cannot be locked."""
        nodes = [t.pk for t in self.tasks.values() if t.waits is not None and t.waits >= 0]
        if nodes:
            locked = self._store.graph_ends.lock(nodes, waits=waits)
            for key in () if waits else set(nodes) - locked:
                del self.tasks[key]

    def set(self, instance: Instance, **values: Any) -> None:
        """Set columns of an Instance."""
        for name, value in values.items():
            setattr(instance, name, value)
            self._changed_fields.add(name)
        self._touched[instance.pk] = instance

    def is_settled(self, instance: Instance) -> bool:
        """Return whether the end of this live Instance affects its graph or triggers hooks."""
        task = self.tasks.get(instance.pk)
        return task is not None and task.waits is not None

    def delete_task(self, instance: Instance, who: str = "") -> None:
        """Delete the Task of an Instance that has ended."""
        if self.is_settled(instance):
            self._ended[instance.pk], self._who = instance.state, who
        self._deleted.add(instance.pk)
        self._freed.pop(instance.pk, None)
        self._created.pop(instance.pk, None)
        self.tasks.pop(instance.pk, None)

    def free_task(self, task: Task) -> None:
        """Release a Task from its holder, so that it waits again."""
        task.daemon = None
        self._freed[task.pk] = task

    def create_task(self, instance: Instance) -> None:
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

    def respond(self, instance: Instance, response: ResponseData) -> None:
        """Keep the response of an Instance."""
        self._responses[instance.pk] = response

    def remove(self, instance: Instance) -> None:
        """Remove a FINISHED Instance that is not kept, unless a lock or stored files prevent it."""
        self._unkept.add(instance.pk)

    def log(self, instance: Instance, move: Move, time: datetime, *, is_counted: bool) -> None:
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

    def count_failure(self, instance: Instance, failed: Failed, time: datetime) -> None:
        """Store a dead letter as a Failure, which a job adds to its error group later."""
        self._failures.append(failure(instance.uuid, failed, time))

    def write(self, *, settles: bool = True) -> None:
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
            store.removal.remove_unkept(self._unkept)
        if self._freed or self._created:
            store.tell()
        if self.upstreams is not None:
            self.upstreams.write()
        if self._ended and settles:
            store.graph_ends.settle(self._ended, who=self._who)

    def _update(
        self, model: type[Instance] | type[Task], rows: Mapping[int, Any], fields: Sequence[str]
    ) -> None:
        """Update these columns of the given rows, a dict by key."""
        alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        others: list[Any] = []
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

    def _write_responses(self) -> None:
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


# The mover: it applies moves to a batch by the transition table, with guard and fence.


class Mover:
    """Loads the rows that moves touch, applies the transition table, and writes once.

    Use it inside one transaction. ``now`` is the database's time. With ``counts`` it counts all
    moves in Statistic; else it leaves out those of a holder, who counts them itself.
    """

    def __init__(self, store: "ORMStore", now: datetime, *, counts: bool = True) -> None:
        self._store = store
        self._counts = counts
        self._now = now
        self._batch = Batch(store, now)
        self._misfits = Misfits(store, now)
        self.instances, self.tasks = self._batch.instances, self._batch.tasks

    def load(self, keys: Collection[int], *, waits: bool = True, revives: bool = False) -> Self:
        """Lock and read the Instances of these keys and their Tasks: see :meth:`Batch.load`."""
        self._batch.load(keys, waits=waits, revives=revives)
        return self

    def write(self, *, settles: bool = True) -> None:
        """Write all applied changes: see :meth:`Batch.write`."""
        self._batch.write(settles=settles)

    def in_order(self, moves: Sequence[Move]) -> Sequence[Move]:
        """Return the moves in the order in which to apply them: that of their graph."""
        upstreams = self._batch.upstreams
        return moves if upstreams is None else upstreams.in_order(moves)

    def apply(self, move: Move, *, actor: Actor, holder: int | None = None) -> bool:
        """Apply one move in memory; returns False if it is refused.

        ``holder`` is the key of a daemon's row: that of the daemon itself if the actor is a HOLDER,
        or that of the daemon whose Tasks a SWEEPER takes away. A SWEEPER without ``holder`` acts on
        a Task that nobody holds although its Instance is in the state of a claimed one.
        """
        if move.started is not None:
            return self._apply_start(move, actor, holder)
        batch = self._batch
        instance = self.instances.get(move.instance)
        if instance is None:
            return False
        is_counted = self._counts or actor is not Actor.HOLDER
        if is_misfit(move):
            move = self._misfits.decided(move, instance.type.identifier)
            is_counted = True  # the holder does not know how it was decided
        elif move.event == Event.REDRIVE:
            move = move._replace(detail=instance.reason)
        transition = states.transition(move.event, State(instance.state))
        if transition is None or actor not in transition.actors:
            return False
        task: Any = self.tasks.get(instance.pk)  # None only for a redrive, if _may() allows it
        if not self._may(move, transition, actor, holder, task):
            return False
        if batch.is_settled(instance) and not move.kept:
            # Other nodes of its graph, or its hooks, may need its result.
            move = move._replace(kept=True)
        time = move.time or self._now
        self._count(instance, transition)
        batch.set(instance, state=transition.target)
        self._date(instance, move, time)
        if move.reason in DEAD_LETTER:
            self._group(instance, move, time)
        self._row(instance, task, transition.row, move)
        batch.log(instance, move, time, is_counted=is_counted)
        if move.response is not None and move.kept:
            batch.respond(instance, move.response)
        if move.event == Event.FINISH and not move.kept:
            batch.remove(instance)
        if transition.row is Row.FREED and task.request == CANCEL:
            self._cancel(instance, move)
        elif move.event == Event.EXPIRE:
            self._give_up_if_stale(instance, move)
        return True

    def _apply_start(self, move: Move, actor: Actor, holder: int | None) -> bool:
        """Apply the start of an attempt, and then the move that was recorded with it."""
        if states.transition(move.event, State.RUNNING) is None:
            return False
        start = Move(
            event=Event.START,
            instance=move.instance,
            attempt=move.attempt,
            time=move.started,
            who=move.who,
        )
        return self.apply(start, actor=actor, holder=holder) and self.apply(
            move._replace(started=None), actor=actor, holder=holder
        )

    def _may(
        self,
        move: Move,
        transition: Transition,
        actor: Actor,
        holder: int | None,
        task: Task | None,
    ) -> bool:
        """The fence: return whether this actor may apply this move to the Task.

        A HOLDER has to hold the Task under the move's attempt.
        """
        if actor is Actor.ANYONE and task is None:
            # Without a Task only a redrive is allowed. If the Instance is live, another session
            # has just redriven it.
            upstreams = self._batch.upstreams
            allowed = upstreams is None or upstreams.allow(move.instance)
            keys = self._batch.keys
            allowed &= keys is None or keys.is_free(self.instances[move.instance])
            return transition.row is Row.CREATED and allowed
        if task is None:
            return False
        if actor is Actor.ANYONE or (actor is Actor.SWEEPER and holder is None):
            return task.daemon_id is None
        if task.daemon_id is None or task.daemon_id != holder:
            return False
        return move.attempt == task.attempt

    def _count(self, instance: Instance, transition: Transition) -> None:
        for counter in transition.counts:
            self._batch.set(instance, **{counter: getattr(instance, counter) + 1})
        for counter in transition.resets:
            self._batch.set(instance, **{counter: 0})

    def _date(self, instance: Instance, move: Move, time: datetime) -> None:
        if move.event == Event.START:
            self._batch.set(instance, started=time, progress=None, progress_message="")
        elif instance.is_terminal:
            self._batch.set(instance, finished=time, reason=move.reason)
            if move.event == Event.FINISH:
                self._batch.set(instance, progress=1.0)
        elif instance.finished is not None:
            self._batch.set(instance, finished=None, reason="")
            if instance.error_id is not None:
                self._batch.set(instance, error_id=None)

    def _group(self, instance: Instance, move: Move, time: datetime) -> None:
        """Put a dead letter into its error group."""
        type = instance.type.identifier
        failed = move.failed or failures.of_message(type, move.detail, move.message)
        self._batch.set(instance, error_id=failed.group)
        self._batch.count_failure(instance, failed, time)

    def _row(self, instance: Instance, task: Any, effect: Row, move: Move) -> None:
        if effect is Row.DELETED:
            self._batch.delete_task(instance, move.who)
        elif effect is Row.FREED:
            if move.delay is not None:
                task.due_at = self._now + move.delay
            # The move back fulfils a request to release. A request to pause was about this attempt
            # only.
            if task.request != CANCEL:
                task.request = ""
            if task.start_before is not None and instance.started is not None:
                if is_misfit(move):
                    # No handler was entered: the Instance can still be missed.
                    self._batch.set(instance, started=None)
                else:
                    task.start_before = None
            self._batch.free_task(task)
        elif effect is Row.CREATED:
            self._batch.create_task(instance)

    def _give_up_if_stale(self, instance: Instance, move: Move) -> None:
        budget = instance.type.max_restarts
        if not states.is_stale(restarts=instance.restarts, lost=instance.lost, max_restarts=budget):
            return
        fail = Move(
            event=Event.FAIL,
            instance=instance.pk,
            who=move.who,
            message=messages.attempts_given_up(
                instance.restarts, budget, instance.lost, move.message
            ),
            level=logging.ERROR,
            reason=Reason.STALE,
            failed=failures.of_loss(instance.type.identifier, move.detail),
        )
        self._fail(fail)

    def _cancel(self, instance: Instance, move: Move) -> None:
        """Fail an Instance whose holder had been asked to cancel it."""
        asked = cancel_requests(self._store, [instance.pk]).get(instance.pk)
        fail = Move(
            event=Event.FAIL,
            instance=instance.pk,
            who=move.who,
            message=messages.cancelled(asked.who if asked else ""),
            level=logging.WARNING,
            reason=Reason.CANCELLED,
        )
        self._fail(fail)

    def _fail(self, move: Move) -> None:
        """Fail an Instance whose Task has just been freed."""
        if not self.apply(move, actor=Actor.ANYONE):
            raise AssertionError(f"a freed Instance could not be failed: {move.instance}")


def cancel_requests(store: "ORMStore", keys: Collection[int]) -> dict[int, LogRecord]:
    """Return the last LogRecord of each Instance that asks for a cancel, by Instance."""
    asked = store.rows(LogRecord).filter(instance__in=keys, kind=Kind.ASK, detail=CANCEL)
    return {record.instance_id: record for record in asked.in_order()} if keys else {}
