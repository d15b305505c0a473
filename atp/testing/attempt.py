"""Runs one attempt in a test's process, isolated as in a worker, and loses it at fault points."""

from __future__ import annotations

import contextvars
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import uuid4

from django.core.cache import caches
from django.core.signals import got_request_exception
from django.db import Error, connections, transaction
from django.db.models import QuerySet

from .. import __version__, signals
from ..authoring.context import Context, LogCapture
from ..authoring.loop_context import LoopContext
from ..authoring.steps import Asleep, StepContext
from ..commands import CANCEL, RELEASE, STACK, AttemptCommand
from ..conf import settings
from ..daemon.options import hostname
from ..daemon.outcomes import Kind, Outcome
from ..daemon.worker import execution
from ..daemon.worker.isolation import ENTRIES, TIMERS, ProcessState
from ..daemon.worker.transactions import Checkpoints as WorkerCheckpoints
from ..daemon.worker.transactions import Transaction
from ..daemon.worker.worker import open_root_logger, share_caches
from ..exceptions import ATPError, InvalidOption, PausedInTransaction
from ..models import Task
from ..operations.registry import registry
from ..states import Event
from ..store import get_store
from ..store.common.turns import ClaimMemory
from ..store.facts import DaemonFacts
from ..store.values import Attempt, Message, Move, ProgressUpdate
from ..webhooks import Message as WebhookMessage
from ..webhooks import collect_messages

if TYPE_CHECKING:
    from ..payload.codec import Payload


# The positions of a fault point relative to a step.
WHEN = ("before", "in", "after")
# The ways to lose an attempt without a fault point.
ENDS = ("before", "after")
Loss = Literal["before", "after"]

# The lease of a test's daemon, in seconds. It is longer than any test, because nobody renews it.
# A file lock cannot replace the lease, because a database in memory has no folder for locks.
LEASE = 86400.0

# The prefix of the receivers that Django's test client connects. They make a request fail for any
# exception that is signalled during the request.
_TEST_CLIENT = "request-exception-"
# The driver's status of a transaction in which a statement has failed.
_FAILED_TRANSACTION = 3

logger = logging.getLogger("atp.worker")

# The webhooks from handlers that have run in this process, like Django's ``mail.outbox``.
outbox: list[WebhookMessage] = []


class NotPossible(ATPError):
    """The test requested something impossible, such as a daemon while a transaction is open."""


# Fault points: where a test loses an attempt.


@dataclass(frozen=True)
class Fault:
    """The moment at which a test loses the attempt: before, in or after a step of the handler.

    ``point`` consists of "before", "in" or "after", a space, and the name of a step. For example,
    "in charge" loses the attempt when the function of the step ``charge`` has returned, but its
    result is not stored yet. Raises InvalidOption for any other text.
    """

    point: str

    def __post_init__(self) -> None:
        if self.when not in WHEN or not self.step:
            raise InvalidOption(
                f"Fault({self.point!r}): must be 'before', 'in' or 'after' and the name of a step, "
                "such as Fault('after charge')."
            )

    @property
    def when(self) -> str:
        return self.point.partition(" ")[0]

    @property
    def step(self) -> str:
        return self.point.partition(" ")[2]


def check_loss(lose: object) -> None:
    """Raise InvalidOption unless ``lose`` is None, "before", "after" or a Fault."""
    if lose is not None and lose not in ENDS and not isinstance(lose, Fault):
        raise InvalidOption(f"lose={lose!r}: must be None, 'before', 'after' or a Fault.")


class AttemptLost(BaseException):
    """Raised in the handler at a fault point, where a real worker would die."""


class _IgnoredMemory:
    """Replaces the shared memory where a worker marks that nobody may stop it, and does nothing."""

    def write(self, slot: int, is_unstopped: bool) -> None:
        pass


class Checkpoints(WorkerCheckpoints):
    """Writes an attempt's checkpoints as a worker does, and raises AttemptLost at a fault point."""

    def __init__(
        self, who: str, interruption: Any, isolation: Isolation, fault: Fault | None
    ) -> None:
        super().__init__(who, interruption, _IgnoredMemory(), 0)
        self._isolation, self._fault = isolation, fault
        self._transaction: str | None = None
        # The names of the steps that the handler reached, in order.
        self.seen: list[str] = []

    def is_in_transaction(self) -> bool:
        return self._isolation.is_inside()

    def find(self, context: StepContext, name: str) -> Any:
        self._reach("before", name)
        return super().find(context, name)

    def begin(self, context: StepContext, name: str, delay: timedelta | None = None) -> Any:
        self._reach("before", name)
        return super().begin(context, name, delay)

    def keep(
        self, context: StepContext, name: str, payload: Payload, took: timedelta | None = None
    ) -> None:
        self._reach("in", name)
        super().keep(context, name, payload, took)
        if self._transaction != name:
            self._reach("after", name)

    @contextmanager
    def transaction(self, context: StepContext, name: str) -> Iterator[None]:
        self._transaction = name
        with super().transaction(context, name):
            yield
        self._reach("after", name)

    def _reach(self, when: str, name: str) -> None:
        if name not in self.seen:
            self.seen.append(name)
        if self._fault is not None and (when, name) == (self._fault.when, self._fault.step):
            raise AttemptLost(f"lost at the fault point {self._fault.point!r}")


# The daemon of a test has a row in the queue, but no process.


class InProcessDaemon:
    """A daemon inside the test's process, which claims one Task at a time.

    ``types`` are the identifiers of the Types that the daemon serves. The daemon is a context
    manager. At the end of the block it hands back the Tasks that it still holds, or loses them if
    ``lost`` is set to a reason. It plans no slots of schedules, because the number of due slots
    would depend on when the test runs.
    """

    def __init__(self, types: Sequence[str]) -> None:
        self.store = get_store()
        self.uuid = uuid4()
        self.name = f"{hostname()}:{os.getpid()}"
        self.lost = ""
        self._types = types
        # The Types that have waiting Tasks. Claims name only these.
        self._claimable: list[str] = []
        self._memory = ClaimMemory()

    def __enter__(self) -> Self:
        facts = DaemonFacts(
            uuid=self.uuid,
            host=hostname(),
            pid=os.getpid(),
            version=__version__,
            types=tuple(self._types),
        )
        with self.store.rehearsals.as_guest():
            self.store.daemons.join(facts, lease=LEASE)
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        # If an error has broken the test's transaction, a follow-up error must not hide it.
        with suppress(*([] if kind is None else [Error])), self.store.rehearsals.as_guest():
            self.store.daemons.leave(self.uuid, lost=self.lost)

    def claim(self) -> Attempt | None:
        """Claim and return the next due Task, or None if no Task is due even after maintenance."""
        with self.store.rehearsals.as_guest():
            while True:
                if claimed := self._claim_one():
                    return claimed
                if not self._find_more_types() and not self._do_maintenance():
                    return None

    def _claim_one(self) -> Attempt | None:
        if not self._claimable:
            return None
        types, memory = self._claimable, self._memory
        claimed = self.store.claims.claim(self.uuid, types, 1, free=1, memory=memory)
        return claimed[0] if claimed else None

    def _find_more_types(self) -> bool:
        """Read which Types have waiting Tasks, and return True if one of these Types is new.

        Claims name only these Types, because a project can have hundreds while a test uses one.
        """
        names = self._waiting_tasks().values_list("type__identifier", flat=True)
        found = set(names.distinct().order_by())
        before, self._claimable = self._claimable, sorted(found & set(self._types))
        return not set(self._claimable) <= set(before)

    def _waiting_tasks(self) -> QuerySet[Task]:
        return Task.objects.using(self.store.alias).waiting()

    def take(self, instance: int) -> Attempt | None:
        """Claim and return the Task of this Instance, or return None if that is not possible."""
        with self.store.rehearsals.as_guest():
            return self.store.rehearsals.take(self.uuid, instance)

    def _do_maintenance(self) -> bool:
        """Run a daemon's maintenance jobs, and return True if a Task might have become due."""
        store, who = self.store, self.name
        done = store.claims.miss(who=who)
        done += store.gates.drop(who=who)
        if store.graph_ends.are_live():
            done += store.graph_ends.fail_dependants(who=who)
            before = self._waiting_tasks().count()
            after: int | None = None
            while after != 0:
                ended, after = store.graph_ends.end(after=after or 0, who=who)
                done += ended
            while store.graph_ends.undo(who=who):
                pass
            # Nodes that undo others may have become due.
            done += self._waiting_tasks().count() - before
        return bool(done)

    def start(self, claimed: Attempt) -> None:
        """Record in the queue that an attempt has started."""
        self.record(Move(event=Event.START, instance=claimed.instance, attempt=claimed.number))

    def record(self, move: Move) -> None:
        """Record in the queue a transition of a Task that this daemon holds."""
        with self.store.rehearsals.as_guest():
            self.store.records.record([move._replace(who=self.name)], daemon=self.uuid)

    def record_progress(self, notes: Sequence[ProgressUpdate]) -> None:
        """Write progress updates from attempts to the queue."""
        if notes:
            with self.store.rehearsals.as_guest():
                self.store.records.note(notes, daemon=self.uuid)

    def command_for(self, claimed: Attempt) -> AttemptCommand | None:
        """Return the command to this attempt, such as a cancel, or None."""
        for command in self.store.control.asked(self.uuid):
            if (command.instance, command.attempt) == claimed.key and command.request != STACK:
                return command
        return None


# The process of a test while handlers run in it; its state is restored after each of them.


class Process:
    """A context manager that prepares the test's process for a drain, and restores it afterwards.

    An attempt can run inside another one.
    """

    def __init__(self) -> None:
        self._capture = LogCapture()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._levels = root.level, [(handler, handler.level) for handler in root.handlers]
        open_root_logger(settings.LOG_LEVEL)
        root.addHandler(self._capture)
        share_caches()
        self._stack.enter_context(collect_messages(outbox))
        receivers = got_request_exception.receivers
        self._client_receivers = [each for each in receivers if _belongs_to_client(each)]
        self._set_receivers([each for each in receivers if not _belongs_to_client(each)])
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
        own = got_request_exception.receivers
        self._set_receivers([*own, *self._client_receivers])
        root = logging.getLogger()
        root.removeHandler(self._capture)
        level, levels = self._levels
        root.setLevel(level)
        for handler, before in levels:
            handler.setLevel(before)

    @contextmanager
    def running(self, context: Context) -> Iterator[Callable[..., Any]]:
        """Prepare this process for an attempt, and restore the process after the block.

        Yield ``call(function, *args)``, which calls the function without the test's context
        variables, as in a worker.
        """
        outer, self._capture.context = self._capture.context, context
        is_main = threading.current_thread() is threading.main_thread()
        state = _TestProcessState() if is_main else None
        own = contextvars.Context()
        shared = {alias: caches[alias] for alias in caches.settings}
        for alias, cache in shared.items():
            own.run(caches.__setitem__, alias, cache)
        try:
            yield own.run
        finally:
            self._capture.context = outer
            if state is not None:
                state.restore()

    @staticmethod
    def _set_receivers(receivers: list[Any]) -> None:
        with got_request_exception.lock:
            got_request_exception.receivers = receivers
            got_request_exception.sender_receivers_cache.clear()


class _TestProcessState(ProcessState):
    """The ProcessState of a worker, except that timers of the test, such as a timeout, go on."""

    def __init__(self) -> None:
        super().__init__([each for each in ENTRIES if each not in TIMERS])
        self._began = time.monotonic()
        self._alarm = signal.getitimer(signal.ITIMER_REAL)

    def restore(self) -> str:
        left, interval = self._alarm
        if left:
            left = max(left - (time.monotonic() - self._began), 0.001)
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        problems: str = super().restore()
        return problems


def _belongs_to_client(receiver: Any) -> bool:
    identity = receiver[0][0]
    return isinstance(identity, str) and identity.startswith(_TEST_CLIENT)


# One attempt: the handler runs as in a worker.


class TestAttempt:
    """Runs the handler of a claimed Task, while the caller records how the attempt ended.

    ``meanwhile()`` runs other Tasks while the handler is paused. If ``is_lost`` is True, a
    transactional attempt is lost right before its commit.
    """

    # Pytest must not collect this class.
    __test__ = False

    def __init__(
        self,
        claimed: Attempt,
        daemon: InProcessDaemon,
        process: Process,
        *,
        meanwhile: Callable[[], object],
        fault: Fault | None = None,
        is_lost: bool = False,
    ) -> None:
        self._claimed, self._daemon, self._process = claimed, daemon, process
        self._meanwhile, self._dies_before_commit = meanwhile, is_lost
        self._is_transactional = registry.is_transactional(claimed.type)
        self._isolation = Isolation()
        self._worker_name = f"{daemon.name} test"
        self._entry = _Entry(self)
        self._checkpoints = Checkpoints(self._worker_name, self._entry, self._isolation, fault)
        self._signalled_error: BaseException | None = None
        # The progress updates from the handler: messages, progress and files.
        self.notes: list[ProgressUpdate] = []

    @property
    def error(self) -> BaseException | None:
        """The exception from the handler, its inputs or its response, or None.

        An exception that only means a sleep does not count.
        """
        error = self._entry.error or self._signalled_error
        return None if isinstance(error, Asleep) else error

    @property
    def steps(self) -> list[str]:
        """The names of the steps that the handler reached."""
        return self._checkpoints.seen

    def run(self) -> Outcome:
        """Run the handler and return the attempt's outcome, even if the handler raises.

        Raises only AttemptLost, at a fault point, and KeyboardInterrupt.
        """
        transaction, report = None, self._report
        if self._is_transactional:
            transaction = Transaction(self._claimed, who=self._worker_name, report=self._report)
            report = transaction.report
            transaction.left = partial(self._isolation.after_commits, settings.DATABASE)
            if self._dies_before_commit:
                transaction.before_commit = self._lose
        kind = LoopContext if registry.runs_in_loops(self._claimed.type) else Context
        context = kind(
            self._claimed,
            report=report,
            interruption=self._reason_to_end,
            scratch_root=Path(settings.SCRATCH_DIR),
            halting=_Pauses(self),
            keeper=self._checkpoints,
            grower=transaction or self._checkpoints,
            worker=self._worker_name,
        )
        with self._process.running(context) as call, self._isolation:
            try:
                signals.handler_ended.connect(self._note_end, weak=False)
                arguments = self._claimed, context, transaction, self._entry, self._is_left_open
                outcome: Outcome = call(execution.run, *arguments)
            finally:
                signals.handler_ended.disconnect(self._note_end)
                context.end()
                context.remove_scratch()
        if isinstance(self.error, (KeyboardInterrupt, AttemptLost)):
            raise self.error
        return outcome

    def _lose(self) -> None:
        raise AttemptLost

    def _note_end(self, *, context: Context, exception: BaseException | None, **facts: Any) -> None:
        if context.key == self._claimed.key:
            self._signalled_error = exception

    def ended(self, error: BaseException | None) -> None:
        """Call the handler's ``on_commit()`` callbacks after the handler has ended."""
        if not isinstance(error, AttemptLost):
            self._isolation.handler_ended(error, but=self._own_transaction())

    def _own_transaction(self) -> str | None:
        """Return the database alias on which ATP opened a transaction for the handler, or None."""
        return settings.DATABASE if self._is_transactional else None

    def _is_left_open(self) -> list[str]:
        return self._isolation.left_open(but=self._own_transaction())

    def _reason_to_end(self) -> str | None:
        command = self._daemon.command_for(self._claimed)
        if command is None or command.request not in (CANCEL, RELEASE):
            return None
        return command.request

    def pause(self) -> None:
        """Run other Tasks while the handler is paused. Raises PausedInTransaction."""
        if self._isolation.is_inside():
            raise PausedInTransaction("A pause inside a transaction would keep it open.")
        self._meanwhile()

    # What the handler reports

    def _report(self, kind: str, *values: Any, at: float | None = None) -> None:
        note = partial(
            ProgressUpdate,
            instance=self._claimed.instance,
            attempt=self._claimed.number,
            who=self._worker_name,
            transactional=self._is_transactional,
        )
        if kind == "log":
            level, text = values
            written = datetime.fromtimestamp(at or time.time(), UTC)
            self.notes.append(note(messages=(Message(time=written, level=level, text=text),)))
        elif kind == "progress":
            fraction, text = values
            self.notes.append(note(progress=fraction, progress_message=text))
        elif kind == "left_out":
            self.notes.append(note(left_out=values[0]))
        elif kind == "file":
            self.notes.append(note(files=values))


class _Entry:
    """A context manager around only the handler, which stores the handler's exception."""

    def __init__(self, attempt: TestAttempt) -> None:
        self._attempt = attempt
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.error = error
        self._attempt.ended(error)

    def by(self, cancel: Callable[[], object]) -> _Entry:
        return self

    def put_off(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Pauses:
    """The pauses of an attempt. Only the handler can request one, and other Tasks run meanwhile."""

    def __init__(self, attempt: TestAttempt) -> None:
        self._attempt = attempt

    def look(self) -> None:
        pass

    @contextmanager
    def own(self, message: str) -> Iterator[None]:
        self._attempt.pause()
        yield


def has_recorded_end(outcome: Outcome) -> bool:
    """Return True if the caller need not record the end of an attempt.

    Either a transactional attempt has recorded its own end, or the Task no longer belongs to it.
    """
    return outcome.kind in (Kind.CONCLUDED, Kind.GONE)


# Isolation: a handler in a test sees its connections as in a worker, without a transaction.
#
# If the test has a transaction open, each attempt runs inside a savepoint of it. The handler's
# ``on_commit()`` callbacks are called when the handler has ended. If the database rejects a
# statement of the handler, only that savepoint is rolled back.


class Isolation:
    """A context manager that hides the test's transactions from the handler of one attempt.

    Enter it in the thread that runs the handler.
    """

    def __init__(self) -> None:
        self._guarded: dict[str, _GuardedConnection] = {}

    def __enter__(self) -> Self:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                self._guarded[connection.alias] = _GuardedConnection(connection)
        return self

    def __exit__(self, *raised: object) -> None:
        for guarded in self._guarded.values():
            guarded.end()
        for connection in connections.all(initialized_only=True):
            if connection.alias not in self._guarded and _has_transaction(connection):
                _end_transaction(connection)

    def is_inside(self) -> bool:
        """Return True if the handler has a transaction open on the queue's database."""
        return self._is_open(connections[settings.DATABASE])

    def left_open(self, *, but: str | None = None) -> list[str]:
        """Return the aliases where the handler has a transaction open, except the alias ``but``."""
        opened = connections.all(initialized_only=True)
        return [each.alias for each in opened if each.alias != but and self._is_open(each)]

    def _is_open(self, connection: Any) -> bool:
        guarded = self._guarded.get(connection.alias)
        return _has_transaction(connection) if guarded is None else guarded.is_open

    def handler_ended(self, error: BaseException | None, *, but: str | None = None) -> None:
        """Call the handler's ``on_commit()`` callbacks on all databases except ``but``.

        Raises NotPossible if the handler raised no exception, but broke the test's transaction.
        """
        for alias, guarded in self._guarded.items():
            if alias != but and not guarded.is_open:
                guarded.after_commits()
            if error is None and guarded.is_broken:
                raise NotPossible(
                    "The database rejected a statement of this handler, and the handler went on. "
                    "That broke the test's transaction, because the handler runs inside it. Put "
                    "the statement into transaction.atomic(), or use TransactionTestCase."
                )

    def after_commits(self, alias: str) -> None:
        """Call the ``on_commit()`` callbacks of a transactional attempt after its commit."""
        guarded = self._guarded.get(alias)
        if guarded is not None and not guarded.is_open:
            guarded.after_commits()


class _GuardedConnection:
    """A connection on which a test has a transaction open."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._block: Any = transaction.atomic(using=connection.alias)
        # Django treats this block like TestCase's own, so it can contain a durable block.
        self._block._from_testcase = True
        self._block.__enter__()
        self._depth = len(connection.atomic_blocks)
        self._savepoints = len(connection.savepoint_ids)
        self._callbacks = len(connection.run_on_commit)
        self.is_kept = True

    @property
    def is_open(self) -> bool:
        return len(self._connection.atomic_blocks) > self._depth

    @property
    def is_broken(self) -> bool:
        info = getattr(self._connection.connection, "info", None)
        return self._connection.needs_rollback or (
            getattr(info, "transaction_status", None) == _FAILED_TRANSACTION
        )

    def after_commits(self) -> None:
        """Call the handler's ``on_commit()`` callbacks on this connection, in order."""
        while not self.is_broken and len(self._connection.run_on_commit) > self._callbacks:
            _, function, is_robust = self._connection.run_on_commit.pop(self._callbacks)
            try:
                function()
            except Exception:
                if not is_robust:
                    raise
                logger.exception("after a commit")

    def end(self) -> None:
        """End the handler's savepoint. The test's transaction continues."""
        connection = self._connection
        if self.is_open:
            del connection.atomic_blocks[self._depth :]
            del connection.savepoint_ids[self._savepoints :]
            self.is_kept = False
        del connection.run_on_commit[self._callbacks :]
        if not self.is_kept or self.is_broken:
            connection.needs_rollback = True
        self._block.__exit__(None, None, None)


def _has_transaction(connection: Any) -> bool:
    is_manual = connection.connection is not None and not connection.get_autocommit()
    return connection.in_atomic_block or is_manual


def _end_transaction(connection: Any) -> None:
    """Roll back the transaction that a handler left open.

    The connection stays open, because closing it would delete a database in memory.
    """
    connection.in_atomic_block = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks = [], []
    connection.run_on_commit = []
    connection.rollback()
    connection.set_autocommit(True)
