"""The mover: it applies moves to a batch by the transition table, with guard and fence."""

import logging

from ... import messages, states
from ...commands import CANCEL
from ...models import Kind, LogRecord
from ...states import DEAD_LETTER, Actor, Event, Reason, Row, State
from .. import failures
from ..misfits import Misfits, is_misfit
from ..values import Move
from .batch import Batch


class Mover:
    """Loads the rows that moves touch, applies the transition table, and writes once.

    Use it inside one transaction. ``now`` is the database's time. With ``counts`` it counts all
    moves in Statistic; else it leaves out those of a holder, who counts them itself.
    """

    def __init__(self, store, now, *, counts=True):
        self._store = store
        self._counts = counts
        self._now = now
        self._batch = Batch(store, now)
        self._misfits = Misfits(store, now)
        self.instances, self.tasks = self._batch.instances, self._batch.tasks

    def load(self, keys, *, waits=True, revives=False):
        """Lock and read the Instances of these keys and their Tasks: see :meth:`Batch.load`."""
        self._batch.load(keys, waits=waits, revives=revives)
        return self

    def write(self, *, settles=True):
        """Write all applied changes: see :meth:`Batch.write`."""
        self._batch.write(settles=settles)

    def in_order(self, moves):
        """Return the moves in the order in which to apply them: that of their graph."""
        upstreams = self._batch.upstreams
        return moves if upstreams is None else upstreams.in_order(moves)

    def apply(self, move, *, actor, holder=None):
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
        task = self.tasks.get(instance.pk)
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

    def _apply_start(self, move, actor, holder):
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

    def _may(self, move, transition, actor, holder, task):
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

    def _count(self, instance, transition):
        for counter in transition.counts:
            self._batch.set(instance, **{counter: getattr(instance, counter) + 1})
        for counter in transition.resets:
            self._batch.set(instance, **{counter: 0})

    def _date(self, instance, move, time):
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

    def _group(self, instance, move, time):
        """Put a dead letter into its error group."""
        type = instance.type.identifier
        failed = move.failed or failures.of_message(type, move.detail, move.message)
        self._batch.set(instance, error_id=failed.group)
        self._batch.count_failure(instance, failed, time)

    def _row(self, instance, task, effect, move):
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

    def _give_up_if_stale(self, instance, move):
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

    def _cancel(self, instance, move):
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

    def _fail(self, move):
        """Fail an Instance whose Task has just been freed."""
        if not self.apply(move, actor=Actor.ANYONE):
            raise AssertionError(f"a freed Instance could not be failed: {move.instance}")


def cancel_requests(store, keys):
    """Return the last LogRecord of each Instance that asks for a cancel, by Instance."""
    asked = store.rows(LogRecord).filter(instance__in=keys, kind=Kind.ASK, detail=CANCEL)
    return {record.instance_id: record for record in asked.in_order()} if keys else {}
