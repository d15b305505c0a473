"""What a store has: the part for each subject, with its operations on batches.

Only a store writes Task, Instance.state and LogRecord. All stores pass the same contract tests.
Each operation is one transaction; inside a caller's transaction it is a part of that. Arguments and
results are in :mod:`.values` and :mod:`.facts`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from ..commands import AttemptCommand, Cancelled, DaemonCommand, Mode
from ..deadletters.models import ErrorGroup
from ..downstreams.protection import Report
from ..graphs.plan import GraphAddition, GraphPlan
from ..models import Daemon, Downstream, Gate, Graph, Instance, Limit, LogRecord, Schedule
from ..payload.codec import Payload
from ..states import State
from .common.turns import ClaimMemory
from .counts import Counts
from .facts import (
    NO_FACTS,
    NO_MISFITS,
    Changes,
    Cursor,
    DaemonFacts,
    EngineFacts,
    Fill,
    Marks,
    Misfits,
    OpenTransaction,
    Outlook,
    Planned,
    Reconciled,
    Renewal,
    Scanned,
    ScheduleSpec,
    Scope,
    Session,
    Shape,
    Swept,
)
from .values import (
    Attempt,
    Checkpoint,
    CursorMove,
    Delivered,
    Move,
    Note,
    ProgressUpdate,
    Registration,
    Settled,
    Submission,
)

# Claiming, and failing Tasks that were not started in time.


class Claims(Protocol):
    def claim(
        self,
        daemon: UUID,
        types: Sequence[str],
        limit: int,
        *,
        free: int | None = None,
        careful: bool = False,
        memory: ClaimMemory | None = None,
    ) -> list[Attempt]:
        """Claim up to ``limit`` due Tasks of these Types, in claim order within each lane.

        With ``careful`` the claim skips Instances that another session has locked.

        The claim is shared between Types by their weights, and evenly between the lanes of each
        Type. Claims with the same ``memory`` are shared over time in the same way. It is a
        :class:`~.common.turns.ClaimMemory`, which the daemon passes to each of its claims.

        Tasks behind a gate are left out. Of limited Tasks it takes no more than may be started.
        Tasks that are claimed ahead count towards a limit: if other daemons might lack room because
        of that, the claim takes no more than ``free`` workers can start now. A limit that another
        session keeps locked is left out.

        Returns a list of :class:`Attempt`. Raises LeaseLost. RFC 14 calls this dequeue.
        """

    def miss(self, *, who: str = "", limit: int = 500) -> int:
        """Fail waiting Tasks whose ``start_before`` has passed; returns how many."""


class Limits(Protocol):
    def give_back(
        self, lanes: Collection[tuple[str, str]], *, memory: ClaimMemory | None = None
    ) -> None:
        """Give back tokens of rates, one for each claimed Task that was handed back unstarted.

        ``lanes`` are pairs of Type and collection, one for each Task. A limit that another session
        keeps locked stays as it is. ``memory`` is as for :meth:`Claims.claim`.
        """


class Gates(Protocol):
    def drop(self, *, who: str = "", limit: int = 500) -> int:
        """Fail the Tasks that wait behind a dropping gate; returns how many."""


# Control by operators: gates, limits, changes to Tasks, and requests to holders.


class Control(Protocol):
    def shut(
        self,
        scope: Scope,
        mode: str,
        *,
        who: str = "",
        reason: str = "",
        until: datetime | None = None,
        expected: datetime | str | None = None,
    ) -> Gate:
        """Set the gate of a :class:`Scope` to "hold" or "drop"; returns its row.

        The gate opens by itself at ``until``, by the database's clock. The attribute ``was`` of the
        row is the gate as it was shut before, or None. ``expected`` is the state that the caller
        expects ("open", "hold" or "drop"), or the time since when the gate has been as it is.
        Raises GateChanged if it is another.
        """

    def open(
        self,
        scope: Scope,
        *,
        who: str = "",
        reason: str = "",
        expected: datetime | str | None = None,
    ) -> Gate | None:
        """Open the gate of a :class:`Scope`; returns the gate as it was, None if it was open.

        ``expected`` is as for :meth:`shut`. Raises GateChanged.
        """

    def limit(self, scope: Scope, *, who: str = "", **changes: Any) -> Limit:
        """Set columns of the Limit of a :class:`Scope` for an operator; returns its row."""

    def unlimit(self, scope: Scope, declared: dict[str, Any] | None, *, who: str = "") -> bool:
        """Remove an operator's limits of a :class:`Scope`; returns whether there were any.

        ``declared`` are the limits that the code declares, as columns: they are written instead.
        None means that the caller does not know them: then the limits stay in force until code
        declares the next ones.
        """

    def declare(self, limits: Mapping[str, dict[str, Any]], *, who: str = "") -> set[str]:
        """Write the limits that code declares, columns by Type, unless an operator has set some.

        Returns the identifiers of the Types whose limits another session had locked, as
        :meth:`register` does.
        """

    def request(self, instance: int, request: str, *, who: str, message: str = "") -> bool:
        """Ask the holder of a claimed Task for something, and log who asked.

        Returns False, and writes nothing, if the Task is not claimed or its holder was asked to
        cancel it. The command for the stack replaces no other command, and is refused unless the
        Instance is RUNNING or PAUSED.
        """

    def cancel(self, instances: Sequence[int], *, who: str = "") -> Cancelled:
        """Cancel the live Instances among those given by key; returns :class:`Cancelled`.

        Waiting Instances are FAILED at once. For a claimed one the holder is asked, and the log
        says who asked. The holder ends the attempt as CANCELLED, unless the attempt has ended
        before. If something else sends the Instance back to the queue, such as the loss of its
        daemon, the same transaction makes it CANCELLED.
        """

    def asked(self, daemon: UUID) -> list[AttemptCommand]:
        """Return the commands to the attempts of a daemon: a list of :class:`AttemptCommand`."""

    def change(
        self, instances: Sequence[int], changes: Changes, *, who: str = ""
    ) -> dict[int, list[tuple[str, Any, Any]]]:
        """Change the waiting ones among these Tasks, and log who changed what.

        If one of them cannot be changed, none is. Tasks that do not wait are left as they are.
        Returns the changed columns of each waiting Task by key, each with its old and new value.
        Raises InvalidOption if a Task would be due only after its ``start_before``.
        """


# Daemons: their identity, their lease, commands to them, and the end of lost ones.


class Daemons(Protocol):
    def join(
        self,
        facts: DaemonFacts,
        *,
        lease: float,
        old: UUID | None = None,
        holding: Collection[tuple[int, int]] = (),
    ) -> Reconciled:
        """Give a daemon a row, and with it an identity; returns :class:`Reconciled`.

        ``old`` is the uuid of an identity to take over. Nothing can be claimed under it any more.
        The attempts in ``holding``, pairs of Instance and attempt, move to the new identity;
        whatever else the old one held is expired. An order on the old row moves to the new one. If
        the answer got lost, the daemon may join again under the same uuid.

        It waits for no lock of others: a locked Task stays with the old identity, which is then not
        settled. See :meth:`settle`.
        """

    def settle(
        self, old: UUID, daemon: UUID, *, lease: float, holding: Collection[tuple[int, int]] = ()
    ) -> Reconciled:
        """Complete a :meth:`join` that left Tasks with an old identity; ``daemon`` is the new one.

        Renews the lease of the old identity while that holds an attempt in ``holding``. Returns
        :class:`Reconciled`, as :meth:`join` does.
        """

    def renew(
        self,
        daemon: UUID,
        *,
        lease: float,
        workers: Sequence[Any] = (),
        idle: bool = False,
        mode: Mode = Mode.RUNNING,
        channel: str = "",
        misfits: Misfits = NO_MISFITS,
        engine: EngineFacts = NO_FACTS,
    ) -> Renewal:
        """Extend the daemon's lease; returns :class:`Renewal`. Raises LeaseLost.

        ``channel`` is the channel of its listener. While the daemon is idle, an enqueue may hand it
        a Task there; the daemon then holds that Task as if it had claimed it. ``misfits`` are the
        keys of Instances whose inputs its handlers did not take, by the identifier of their Type.
        ``engine`` is what the daemon knows of the engine of its executor.
        """

    def command(self, daemon: UUID, order: DaemonCommand, *, who: str = "") -> Daemon:
        """Write an order on a daemon's row, and log who gave it; returns the row.

        The daemon finds the order there. Raises UnknownDaemon, or IllegalOrder if the daemon is
        doing this already, is stopping, or is lost.
        """

    def outlook(self, types: Sequence[str], *, daemon: UUID | None = None) -> Outlook:
        """Return an :class:`Outlook`: due Tasks of these Types, and all other work.

        ``daemon`` is the daemon that asks. Nothing is claimed or written.
        """

    def leave(self, daemon: UUID, *, lost: str = "") -> bool:
        """Remove the daemon's row, and release the Tasks that it still held.

        ``lost`` says why the daemon did not end in order: then its attempts are expired, and
        charged. Returns False if another session has locked one of the rows: then the daemon's row
        stays.
        """

    def is_over(self, row: Daemon, now: datetime) -> bool:
        """Return whether the lease of a Daemon row is over, by its file lock or by the time."""

    def sweep(self, *, daemon: UUID | None = None, limit: int = 500) -> Swept:
        """Expire the attempts of lost daemons; returns :class:`Swept`.

        ``daemon`` is the daemon that sweeps: it never sweeps itself.
        """


# Downstreams: the reports of daemons about calls, and the settings of operators.


class Downstreams(Protocol):
    def report(
        self, name: str, report: Report, *, who: str = "", spread: float = 0.0
    ) -> Downstream | None:
        """Add a daemon's report of calls to a Downstream; returns the new row.

        Returns None, and writes nothing, if another session has locked the row or there is none.
        ``spread`` is a random number from -1 to 1.
        """

    def bound(
        self,
        name: str,
        *,
        who: str = "",
        expected: datetime | str | None = None,
        **changes: float | None,
    ) -> Downstream:
        """Set the ``ceiling`` and ``floor`` of a Downstream, in calls a second; returns its row.

        ``expected`` is the state that the caller expects, or the time since when it has been in
        that state. Raises UnknownDownstream, or DownstreamChanged if it is another.
        """

    def reset(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        """Treat a Downstream as healthy again. Raises the same as :meth:`bound`."""

    def trip(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        """Open the breaker of a Downstream. Raises the same as :meth:`bound`."""


# Types: registering and removing them.


class Types(Protocol):
    def register(
        self, registrations: Sequence[Registration], *, who: str = "", update: bool = True
    ) -> set[str]:
        """Write Types, and log the changes; a Type that exists is updated (RFC 14).

        With ``update=False`` only missing Types are written. Returns the identifiers of the Types
        that were not written, since another session had locked them for too long: see
        :meth:`Store.limit_waiting`.
        """

    def name_downstreams(self, names: Mapping[str, str], *, who: str = "") -> set[str]:
        """Write the downstreams of Types, by identifier, into the rows that name others.

        Returns the identifiers of the Types that another session has locked, as :meth:`register`.
        """

    def unregister(self, identifier: str, *, who: str = "") -> None:
        """Remove a Type. Raises UnknownType, or TypeInUse while Instances of it exist."""


# Types and enqueueing.


class Enqueueing(Protocol):
    def enqueue(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        """Write Instances with their Inputs, LogRecord and Task: all of them or none.

        Returns the Instances in the order of ``submissions``, including those that existed already.
        Raises DuplicateIdentifier.
        """


# The error groups of dead letters.


class Errors(Protocol):
    def count(self, *, limit: int = 2_000) -> int:
        """Add up to ``limit`` failures to their groups; returns how many.

        Any number of processes may do this at once: each failure is counted once. Failures and
        groups that another session has locked are left for the next call. A failure after
        ``muted_until`` ends the muting of its group.
        """

    def trim(self, *, before: datetime, limit: int = 500) -> int:
        """Remove groups last seen ``before`` this time that have no dead letters and no note.

        Returns how many.
        """

    def mute(self, group: ErrorGroup, *, by: str, until: datetime | None = None) -> None:
        """Mute a group; ``by`` is who mutes it, or "" to end the muting."""

    def annotate(self, group: ErrorGroup, note: str) -> None:
        """Set the note of a group."""


# Filling: the number of waiting Tasks, and refusing enqueues where too many wait.


class Filling(Protocol):
    def bounded(self) -> dict[str, bool]:
        """Return whether a lane has a limit, by Type with ``max_waiting`` or ``max_wait``."""

    def fills(
        self, type: str, collections: Iterable[str | None], declared: Mapping[str, Any]
    ) -> dict[str | None, Fill]:
        """Return the :class:`Fill` of each of these lanes, by collection; None is the whole Type.

        ``declared`` are the limits in the Type's code. They hold if the Type has no row of Limit.
        """

    def taken(self, type: str, submissions: Sequence[Submission]) -> set[int]:
        """Return the indexes of submissions whose identifier or unique key is taken."""

    def drain_rate(self, type: str, seconds: float) -> float:
        """Return how many Instances of a Type ended per second, over the last ``seconds``."""

    def enqueueing_alone(self, registration: Registration) -> AbstractContextManager[None]:
        """Return a context: a transaction in which nobody else enqueues this Type in this way.

        Inside another transaction it lasts until that one ends. The Type is registered if it
        is not yet.
        """

    def log_full(self, fill: Fill, count: int, *, seconds: float, who: str = "") -> bool:
        """Log that ``count`` enqueues were refused or delayed; returns whether it was logged.

        Nothing is logged if such a record was written within the last ``seconds``.
        """


# Graphs: writing them, and settling the ends of their nodes (G17).


class Graphs(Protocol):
    def submit(self, plan: GraphPlan) -> Graph:
        """Write a checked graph in one transaction. Raises DuplicateIdentifier."""

    def extend(
        self, addition: GraphAddition, *, who: str = "", ends: bool = False
    ) -> dict[str, int] | None:
        """Write the nodes that an attempt adds to its graph; returns their keys by name.

        A worker calls it, on its own connection. The fence is that of :class:`Steps`. If a
        name exists, the existing node is returned, with its edges as they are. No lock is waited
        for: if another session has locked a row that it needs, it writes nothing and returns None.
        ``ends`` says that the attempt ends in the same transaction. Raises TaskGone, InvalidGraph,
        GraphClosed or DuplicateIdentifier before anything is written.
        """

    def cancel(self, graph: int, *, who: str = "") -> Cancelled:
        """Fail a graph's waiting nodes, in portions, and ask the holders of the others to cancel.

        ``graph`` is its key. It is several transactions, unless the caller has one open.
        """

    def redrive(self, graph: int, *, who: str = "") -> int:
        """Redrive all nodes that FAILED, in portions; returns how many.

        Upstream nodes come first, and the others wait for them as before. Nodes that FINISHED are
        not run again.
        """


class GraphEnds(Protocol):
    def lock(self, instances: Collection[int], *, waits: bool = True) -> set[int]:
        """Lock those of these Instances that are nodes; nobody can then add Edges behind them.

        Returns their keys. With ``waits=False``, nodes that another session has locked are left
        out. Call it in the transaction in which the nodes end.
        """

    def settle(self, ended: Mapping[int, State], *, who: str = "") -> None:
        """Settle the ends of nodes: free or fail the nodes that waited for them.

        Call it once for each end, in the transaction that has locked the nodes and recorded their
        ends. A limited number of dependants is failed at once, the others later.
        """

    def fail_dependants(self, *, who: str = "", limit: int = 500) -> int:
        """Fail dependants of FAILED nodes that were left for later; returns how many."""

    def end(self, *, limit: int = 100, after: int = 0, who: str = "") -> tuple[int, int]:
        """Mark graphs without live nodes as ended; returns how many, and a key to go on from.

        If a node has FAILED, the undo of the others begins first, once, and :meth:`undo` goes on
        with it. Looks at up to ``limit`` graphs with keys above ``after``. The second value is the
        last key looked at, or 0 if there are no more graphs.
        """

    def undo(self, *, limit: int = 500, who: str = "") -> bool:
        """Write up to ``limit`` nodes that undo others, for a graph whose undo has begun.

        Graphs take turns. Returns whether more can be written at once.
        """

    def are_live(self) -> bool:
        """Return whether a graph is live, or a FAILED node still has dependants to fail."""

    def purge(self, *, limit: int = 500) -> int:
        """Remove ended graphs that no Type keeps any longer, each as a whole.

        Removes up to ``limit`` Instances; returns how many.
        """


# Inputs of live Instances, examined without opening them. Nothing is written.


class Inputs(Protocol):
    def shapes(self, after: int = 0, *, limit: int = 5_000) -> tuple[list[Shape], int | None]:
        """Return the shapes of the inputs of live Instances, and the last key looked at.

        There is one :class:`Shape` for each Type and shape. Up to ``limit`` Instances are examined,
        in key order, beginning above ``after``. The last key is None if there was none. Inputs that
        cannot be read have no names. No lock is waited for.
        """


# What a worker writes itself, on its own connection: checkpoints, and positions of tailers.


class Steps(Protocol):
    """A worker calls these verbs, on its own connection.

    The fence is the attempt alone, as for :meth:`Records.conclude`: the Task must be held
    under this attempt, or TaskGone is raised. If another session has locked the Task, the verbs
    write nothing and do not wait.
    """

    def find(self, instance: int, name: str) -> Checkpoint | None:
        """Return the checkpoint of this name; None if the step has not begun."""

    def begin(
        self,
        instance: int,
        attempt: int,
        name: str,
        *,
        who: str = "",
        delay: timedelta | None = None,
    ) -> Checkpoint | None:
        """Write that an attempt begins a step, unless it is done; None if the Task is locked.

        If an earlier attempt had begun the step, the log says that it is repeated. With ``delay``
        the step is a sleep of this length, which begins only once. Raises InvalidStep if the name
        belongs to a sleep and this step is none, or the reverse; TooLarge beyond
        ``ATP["MAX_STEPS"]``.
        """

    def hold(self, instance: int, attempt: int) -> bool:
        """Lock the Task until the end of the caller's transaction; False if it is locked."""

    def keep(
        self,
        instance: int,
        attempt: int,
        name: str,
        payload: Payload,
        *,
        took: timedelta | None = None,
    ) -> bool:
        """Keep the result of a step; returns False if the Task is locked.

        In a caller's transaction, the result is committed with it. ``took`` is the time since the
        step began; it is used if the beginning was not written.
        """


class Tailers(Protocol):
    """The positions of the sources outside of the queue, which move with what was read."""

    def begin(self, tailer: str, *, source: str) -> int:
        """Have a row of the tailer; returns how many records in a row were rejected last."""

    def positions(self, tailer: str) -> dict[str, str]:
        """Return the position of each shard that has been read."""

    def advance(
        self, tailer: str, moves: Sequence[CursorMove], settled: Settled, *, who: str = ""
    ) -> bool:
        """Move cursors and add to the counts, in the caller's transaction.

        The notes of the moves are counted, and written to the log of the Type. Returns False if a
        cursor is not where its move begins: then the caller rolls back.
        """

    def look(
        self,
        tailer: str,
        *,
        source: str,
        behind: int | None,
        notes: Sequence[Note] = (),
        who: str = "",
    ) -> bool:
        """Write how an attempt leaves the source; ``source`` is text for display.

        The notes replace those of the look before. Returns True if the Type's log tells of them:
        when they come and go, and at most once an hour while they change.
        """

    def stop(self, tailer: str, error: str) -> None:
        """Write why a tailer has stopped itself, until the next :meth:`look`."""

    def miss(
        self, tailer: str, missing: Collection[str], present: Collection[str], *, for_: timedelta
    ) -> None:
        """Note which shards are missing from the source, and which are not missing any more.

        Cursors of shards that have been missing for longer than ``for_`` are removed.
        """

    def remove(self, tailer: str) -> None:
        """Remove the row of a tailer and its cursors; nothing happens if there are none."""

    def seek(self, tailer: str, shard: str, position: str | None, *, who: str = "") -> None:
        """Set the position of a shard; None removes its cursor. The Type's log tells who did it.

        Raises InvalidOption if there is no cursor of this shard.
        """


# Recording the moves and notes of attempts.


class Records(Protocol):
    def record(self, moves: Sequence[Move], *, daemon: UUID | None = None) -> list[Move]:
        """Apply moves, each with its LogRecord; those of one Instance are applied in order.

        With ``daemon`` the moves are those of a holder, fenced by holder and attempt; without it,
        they come from somebody who holds nothing. Returns the moves that were refused: nothing of
        them was written.

        If a holder is refused because its Task was taken away, the refusal is kept as a message in
        the Instance's log, and counted for its Type (G4). A move that is in the log already, with
        the same time and ``who``, is not refused: a daemon that does not know whether a move was
        written may record it again.
        """

    def conclude(self, move: Move, *, note: ProgressUpdate | None = None) -> None:
        """Record, in the caller's transaction, that an attempt FINISHED, with its last note.

        A worker ends a transactional attempt in this way (G7). The fence is the attempt alone: its
        number is given out once, whatever identity its daemon has by now. Raises TaskGone: then the
        caller must roll the transaction back.
        """

    def deliver(
        self,
        entries: Sequence[Move] | Sequence[ProgressUpdate],
        *,
        daemon: UUID,
        careful: bool = False,
    ) -> Delivered:
        """Record a daemon's moves, or write its notes; returns :class:`Delivered`.

        An Instance that another session has locked for longer than :meth:`Store.limit_waiting`
        allows is left out; the others are written. With ``careful`` the store looks for such locks
        before it writes, and waits for none.
        """

    def keep_late(self, refused: Sequence[Move | ProgressUpdate]) -> list[Move | ProgressUpdate]:
        """Keep refused moves and notes in the log, as :meth:`record` does.

        Returns those that had not been written before.
        """

    def note(self, notes: Sequence[ProgressUpdate], *, daemon: UUID) -> list[ProgressUpdate]:
        """Write progress, messages and published files, fenced; returns the refused notes.

        If an attempt had its Task taken away, one refusal is kept, as by :meth:`record`.
        """


# Rehearsals: verbs for the testing kit. Daemons do not use them.


class Rehearsals(Protocol):
    def take(self, daemon: UUID, instance: int) -> Attempt | None:
        """Claim the Task of this Instance, due or not, in spite of gates and limits.

        Returns None if the Task does not wait. Raises LeaseLost.
        """

    def let_pass(self, time: timedelta, *, instances: tuple[int, ...] | None = None) -> None:
        """Make waiting Tasks due earlier, as if this time had passed.

        It moves due times, ``start_before``, sleeps, the ends of gates and the refilling of rates.
        With ``instances`` it moves only the due times of those Instances.
        """

    def plan_slots(self, schedule: str, since: datetime, until: datetime, *, who: str = "") -> int:
        """Plan the slots of a schedule that are due between these times, one after the other.

        Earlier slots are passed over. Returns how many were decided. Raises UnknownSchedule.
        """

    def as_guest(self) -> AbstractContextManager[None]:
        """Return a context in which a daemon may use a connection of an application.

        Afterwards the session, and its open transaction, plan statements as before.
        """


# Schedules: setting them, and planning their slots.


class Schedules(Protocol):
    def declare(self, specs: Sequence[ScheduleSpec], *, who: str = "") -> set[str]:
        """Write the schedules that code declares; settings of an operator stay.

        A schedule whose times have changed goes on with its first slot after now. Returns the Types
        of the schedules that were not written, since another session had locked them for too long.
        """

    def retire(self, declared: Collection[str], *, who: str = "") -> list[str]:
        """Retire schedules that code declares no more: no slots are planned. Returns them."""

    def follow_rules(self, *, who: str = "") -> list[str]:
        """Compute the next slots anew where the rules of time zones have changed (G16).

        Returns the schedules whose next slot is another one. A slot that has passed by the new
        rules, and was not decided, is due. Schedules that another session has locked are left out.
        """

    def set(self, spec: ScheduleSpec, *, who: str = "", expected: int | None = None) -> Schedule:
        """Write a schedule as an operator sets it; ``expected`` is 0 for a new one.

        Raises ScheduleChanged if ``expected`` is not its revision.
        """

    def leave(self, identifier: str, *, who: str = "") -> Schedule:
        """Return a schedule to what code declares. Raises IllegalSchedule if no code does."""

    def pause(
        self, identifier: str, *, who: str = "", reason: str = "", until: datetime | None = None
    ) -> Schedule:
        """Pause a schedule: its slots are decided as PAUSED from now on.

        Pausing again replaces reason and end; ``was_paused`` of the row has who paused it before,
        and why.
        """

    def resume(self, identifier: str, *, who: str = "") -> Schedule:
        """Resume a schedule with its first slot after now. Raises IllegalSchedule if not paused."""

    def run(self, identifier: str, *, who: str = "") -> Instance:
        """Enqueue an Instance now, without a slot. Raises IllegalSchedule if retired."""

    def backfill(self, identifier: str, slots: Sequence[datetime], *, who: str = "") -> Planned:
        """Decide past slots as ENQUEUED, except those that were; enqueues their Instances."""

    def delete(self, identifier: str, *, who: str = "") -> None:
        """Remove a schedule and its slots. Its Instances stay."""

    def plan(
        self,
        *,
        who: str = "",
        limit: int = 200,
        now: datetime | None = None,
        only: str | None = None,
    ) -> Planned:
        """Decide the due slots of up to ``limit`` schedules, each slot once (G16).

        In a rehearsal, ``now`` replaces the database's time, and ``only`` is the one schedule to
        plan.
        """

    def trim(self, *, keep: int = 1000, limit: int = 5_000) -> int:
        """Remove the oldest Slots of each schedule with more than ``keep``, ``limit`` at most.

        Returns the number of Slots removed: 0 if no schedule has more.
        """


# Statistic and Usage: adding the counts of daemons, counting from the log, folding.


class Statistics(Protocol):
    """Counts of the events in the log, each event once.

    A daemon counts the moves of its attempts itself, and adds the counts about once a second.
    Every other event is counted by the transaction that writes it; its LogRecord says so. When a
    daemon's identity ends, the counts that it has not added are owed: they are counted from the
    log. Its usage is nowhere else: the daemon keeps it, and adds it under its next identity.
    """

    def position(self) -> int:
        """Return a key that is lower than the keys of all LogRecords written later."""

    def add(self, daemon: UUID, counts: Counts) -> bool:
        """Add a daemon's counts of everything that it has recorded so far, and its usage.

        The thread that records calls it. Returns False if nothing was added: another session holds
        a lock, the identity has ended, or the database had no room.
        """

    def owe(self, daemon: UUID, who: str, counted: int | None, until: int | None) -> None:
        """Note, in the caller's transaction, the counts that a daemon owes as its identity ends.

        They are those of the LogRecords signed by ``who`` after the position ``counted``, up to the
        position ``until``, or to the last one if that is None. A ``counted`` of None is for a
        daemon that does not count. The debt of an identity is noted once.
        """

    def pay(self, limit: int = 20_000) -> int:
        """Count owed events from up to ``limit`` LogRecords; returns the number of LogRecords.

        Returns at least 1 if something was owed, and 0 if nothing is.
        """

    def fold(self, now: datetime, limit: int = 1000) -> int:
        """Replace several rows by one that adds them up; returns how many rows were replaced.

        Rows of the same minute become one. Minutes become hours after 2 days; hours become part of
        the totals after 90 days. It is one transaction, and waits for no lock.
        """

    def fold_usage(self, now: datetime, limit: int = 1000) -> int:
        """Replace the minutes of Usage by hours after 2 days, and remove the hours after 90 days.

        Returns how many rows were replaced or removed, at most ``limit`` of each. It is one
        transaction, and waits for no lock.
        """

    def counted(self, records: QuerySet[LogRecord]) -> Counts:
        """Count LogRecords of Instances anew: all records of the counted kinds."""


# Upkeep: the scan.


class Upkeep(Protocol):
    def scan(
        self,
        cursor: Cursor | None = None,
        *,
        who: str = "",
        repair: bool = True,
        now: datetime | None = None,
    ) -> Scanned:
        """Look for conditions that should never arise, by independent queries and a delayed clock.

        Each scan checks what indexes show at once. Besides, it walks through a part of each table
        by primary key, downwards from ``cursor``: the cursor that the last scan returned, or None
        to begin with the newest row. Unless ``repair`` is off, the scan repairs what is safe to
        repair, signed ``who``: it locks the rows and looks again. So any number of scans may run at
        once. ``now`` is the database's time, if the caller knows it. Returns
        :class:`~.facts.Scanned`.
        """


# The removal of old Instances.


class Removal(Protocol):
    def purge(
        self,
        *,
        type: str | None = None,
        instances: Sequence[int] | None = None,
        limit: int = 500,
        who: str = "",
        marks: Marks | None = None,
    ) -> int:
        """Remove up to ``limit`` Instances that have ended; returns how many.

        By default it removes those that ended longer ago than their Type's retention; ``type``
        selects one Type. If a Type keeps nothing, its FAILED Instances are kept as long as the
        setting says. ``instances`` selects Instances by key instead. A ``who`` that asked for the
        removal is logged for each Type.

        It waits for no lock: an Instance stays if another session has locked something of it.
        The caller passes the same ``marks`` to each of its calls: they keep how far the purge has
        come, so that the next call goes on there. With new ones the purge begins with the oldest.
        """


# Waking processes that wait for commits.


class Commits(Protocol):
    """A listener for commits by others: see :meth:`Wakeups.listener`."""

    def wait(self, timeout: float) -> bool: ...

    def close(self) -> None: ...


class Listener(Commits, Protocol):
    """A listener that also receives the Tasks handed to its daemon."""

    @property
    def channel(self) -> str: ...

    @property
    def keeps(self) -> bool: ...

    @property
    def is_deaf(self) -> bool: ...

    @property
    def link(self) -> BaseDatabaseWrapper | None:
        """Django's connection that listens, to be cut if a wait hangs in a dead link; or None."""

    def handed(self) -> list[tuple[UUID, Attempt]]: ...


class Wakeups(Protocol):
    def tell(self) -> None:
        """Wake the idle daemons that listen: something may be started."""

    def listener(self) -> Listener | None:
        """Return a listener for commits of other connections; None if there is only polling.

        ``wait(timeout)`` blocks for up to that many seconds. It returns True as soon as another
        connection may have committed something, and never raises because the database is locked.
        The listener opens its resources in the thread that waits; ``close()`` frees them. The
        result is a hint: the caller polls all the same.

        An enqueue may hand a Task over. ``channel`` is the argument for :meth:`renew`; it is empty
        or another one after the channel was lost. ``handed()`` takes the Tasks that have come:
        pairs of the daemon's uuid and a :class:`Attempt`. A Task that comes after the loss of a
        channel is held by the daemon, which does not know it. ``keeps`` tells whether the next wait
        hears of Tasks that came while nobody waited; if not, somebody must always wait. ``is_deaf``
        tells, after a wait, that nothing can be heard on this connection.
        """

    def commits(self) -> Commits | None:
        """Return a listener for commits, at no cost to the sessions that commit; or None.

        It is like :meth:`listener`, but is handed no Tasks: it is for processes that are not
        daemons. With None there is only polling.
        """


# The whole store.


class Store(Wakeups, Protocol):
    """The verbs of a store; ``alias`` names the database that holds the queue."""

    alias: str

    @property
    def lock_folder(self) -> Path | None:
        """The folder of the daemons' file locks; None if a lease is a time in the database.

        On SQLite a lease is a file lock. All daemons share a host there, and any open transaction
        keeps all writers waiting, so that a lease in a row could not be renewed in time.
        """

    @property
    def types(self) -> Types:
        """The verbs that register Types."""

    @property
    def claims(self) -> Claims:
        """The verbs that claim Tasks."""

    @property
    def limits(self) -> Limits:
        """The verbs of limits that daemons use."""

    @property
    def gates(self) -> Gates:
        """The verbs of gates that daemons use."""

    @property
    def daemons(self) -> Daemons:
        """The verbs of daemons."""

    @property
    def downstreams(self) -> Downstreams:
        """The verbs of downstreams."""

    @property
    def enqueueing(self) -> Enqueueing:
        """The verb that enqueues."""

    @property
    def records(self) -> Records:
        """The verbs that record what becomes of attempts."""

    @property
    def control(self) -> Control:
        """The verbs of operators."""

    @property
    def filling(self) -> Filling:
        """How full Types and lanes are."""

    @property
    def upkeep(self) -> Upkeep:
        """The scan."""

    @property
    def removal(self) -> Removal:
        """The verbs that remove Instances."""

    @property
    def rehearsals(self) -> Rehearsals:
        """The verbs for the testing kit."""

    @property
    def schedules(self) -> Schedules:
        """The verbs of schedules."""

    @property
    def steps(self) -> Steps:
        """The checkpoints of handlers."""

    @property
    def graphs(self) -> Graphs:
        """The verbs of graphs."""

    @property
    def graph_ends(self) -> GraphEnds:
        """What the ends of nodes mean for graphs."""

    @property
    def errors(self) -> Errors:
        """The error groups of dead letters."""

    @property
    def inputs(self) -> Inputs:
        """The verbs that look at the inputs of live Instances."""

    @property
    def statistics(self) -> Statistics:
        """The counts per minute and Type."""

    @property
    def tailers(self) -> Tailers:
        """The positions of the sources outside of the queue."""

    def limit_waiting(self, seconds: float) -> None:
        """Limit how long statements of this thread's connection wait for locks of other sessions.

        It also sets what a daemon relies on, whatever the role or the database sets.
        """

    def is_lock(self, error: BaseException) -> bool:
        """Return whether a call failed only because another session held a lock for too long.

        If so, nothing was written, and the connection can be used.
        """

    def now(self) -> datetime:
        """Return the time by the database's clock, which decides about leases and due times."""

    def clock_offset(self) -> timedelta:
        """Return how far the database's clock is ahead of this host's; 0 if under 0.1 s."""

    def open_transactions(
        self, longer: float, *, locking: float | None = None, instance: UUID | None = None
    ) -> tuple[datetime, list[OpenTransaction]]:
        """Return the database's time, and other sessions' transactions open for ``longer`` seconds.

        With ``locking`` it also returns those open for that many seconds that have locked a table
        which daemons write to, or the Task of ``instance``, by its uuid. It is one statement. The
        list has a few transactions at most: those that have locked something, then the oldest. It
        is empty if the database does not tell. Of other users' sessions this user may see those
        alone that have locked something.
        """

    def end_session(self, pid: int, *, who: str = "") -> OpenTransaction | None:
        """End a session that keeps others waiting, or has locked a table of the queue; log it.

        Its transaction is rolled back. Returns that transaction, or None if there is no such
        session. The database refuses if this user may not end it: raises DatabaseError.
        """

    def sessions(self, application: str) -> list[Session]:
        """Return what the sessions of this application name do: a few :class:`Session` at most.

        The list is empty if the database does not tell.
        """
