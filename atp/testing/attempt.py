"""One attempt in the test's process, isolated as in a worker; fault points."""

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
from ..authoring.steps import Asleep, StepContext
from ..commands import CANCEL, RELEASE, Ask
from ..conf import settings
from ..daemon.options import hostname
from ..daemon.shared.outcome import Kind, Outcome
from ..daemon.worker import execution
from ..daemon.worker.checkpoints import Checkpoints as OfWorker
from ..daemon.worker.isolation.entries import ENTRIES, TIMERS
from ..daemon.worker.isolation.process_state import ProcessState
from ..daemon.worker.preparing import open_root_logger, share_caches
from ..daemon.worker.transactions import Transaction
from ..exceptions import ATPError, InvalidOption, PausedInTransaction
from ..models import Task
from ..operations.registry import registry
from ..states import Event
from ..store import get_store
from ..store.memory import ClaimMemory
from ..store.values.claims import Claimed
from ..store.values.daemons import DaemonFacts
from ..store.values.moves import Move
from ..store.values.notes import Message, Note
from ..webhooks import Message as webhooks_Message
from ..webhooks import kept_in

if TYPE_CHECKING:
    from ..payload.codec import Payload


# The errors of the testing kit. A failed assertion is an AssertionError.


class NotPossible(ATPError):
    """The test asks for something impossible here, such as a daemon inside its transaction."""


# Fault points: where a rehearsal loses an attempt.

WHEN = ("before", "in", "after")
# The losses at the ends of an attempt.
ENDS = ("before", "after")
Loss = Literal["before", "after"]


@dataclass(frozen=True)
class Fault:
    """A point in a handler with steps: there the attempt is lost.

    ``point`` is "before", "in" or "after" and the name of a step. For example "in charge" loses
    the attempt when the function of step ``charge`` has returned and its result is not kept yet.
    Raises InvalidOption.
    """

    point: str

    def __post_init__(self) -> None:
        if self.when not in WHEN or not self.step:
            raise InvalidOption(
                f"Fault({self.point!r}): say 'before', 'in' or 'after' and the name of a step, "
                "as in Fault('after charge')."
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
    """Raised at a fault point: a real worker would be dead now."""


class _NoPage:
    """Stands for the memory where a worker notes that it must not be stopped; ignores all notes."""

    def write(self, slot: int, is_unstopped: bool) -> None:
        pass


class Checkpoints(OfWorker):
    """Writes the checkpoints of one attempt as a worker does; raises AttemptLost at the fault."""

    def __init__(
        self, who: str, interruption: Any, isolation: Isolation, fault: Fault | None
    ) -> None:
        super().__init__(who, interruption, _NoPage(), 0)
        self._isolation, self._fault = isolation, fault
        self._transaction: str | None = None
        # The names of the steps that the handler came to.
        self.seen: list[str] = []

    def is_in_transaction(self) -> bool:
        return self._isolation.is_inside()

    def find(self, context: StepContext, name: str) -> Any:
        self._come_to("before", name)
        return super().find(context, name)

    def begin(self, context: StepContext, name: str, delay: timedelta | None = None) -> Any:
        self._come_to("before", name)
        return super().begin(context, name, delay)

    def keep(
        self, context: StepContext, name: str, payload: Payload, took: timedelta | None = None
    ) -> None:
        self._come_to("in", name)
        super().keep(context, name, payload, took)
        if self._transaction != name:
            self._come_to("after", name)

    @contextmanager
    def transaction(self, context: StepContext, name: str) -> Iterator[None]:
        self._transaction = name
        with super().transaction(context, name):
            yield
        self._come_to("after", name)

    def _come_to(self, when: str, name: str) -> None:
        if name not in self.seen:
            self.seen.append(name)
        if self._fault is not None and (when, name) == (self._fault.when, self._fault.step):
            raise AttemptLost(f"lost at the fault point {self._fault.point!r}")


# Member: the daemon of a test. It has a row in the queue, and no process of its own.

# In seconds, and longer than any test, since nobody renews this lease. No file lock stands for
# it: a database in memory has no folder for locks.
LEASE = 86400.0


class Member:
    """A daemon that serves the Types of these identifiers, and claims one Task at a time.

    At its end it hands back the Tasks that it still holds; if ``lost`` is set to a reason, they
    are lost instead. It plans no slots of schedules: how many are due depends on when the test
    runs.
    """

    def __init__(self, types: Sequence[str]) -> None:
        self.store = get_store()
        self.uuid = uuid4()
        self.name = f"{hostname()}:{os.getpid()}"
        self.lost = ""
        self._types = types
        # Those of the Types that have waiting Tasks: only these are claimed from.
        self._looked_at: list[str] = []
        self._memory = ClaimMemory()

    def __enter__(self) -> Self:
        facts = DaemonFacts(
            uuid=self.uuid,
            host=hostname(),
            pid=os.getpid(),
            version=__version__,
            types=tuple(self._types),
        )
        with self.store.as_guest():
            self.store.join(facts, lease=LEASE)
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        # The error that broke the transaction of a test must not be hidden by one that follows.
        with suppress(*([] if kind is None else [Error])), self.store.as_guest():
            self.store.leave(self.uuid, lost=self.lost)

    def claim(self) -> Claimed | None:
        """Claim the next due Task; return None if even the chores make none due."""
        with self.store.as_guest():
            while True:
                if claimed := self._claim_one():
                    return claimed
                if not self._finds_others() and not self._do_chores():
                    return None

    def _claim_one(self) -> Claimed | None:
        if not self._looked_at:
            return None
        types, memory = self._looked_at, self._memory
        claimed = self.store.claim(self.uuid, types, 1, free=1, memory=memory)
        return claimed[0] if claimed else None

    def _finds_others(self) -> bool:
        """Look which Types have waiting Tasks; return whether a Type is new among them.

        A project may have hundreds of Types, while a test uses one.
        """
        found = self._waiting().values_list("type__identifier", flat=True).distinct().order_by()
        before, self._looked_at = self._looked_at, sorted(set(found) & set(self._types))
        return not set(self._looked_at) <= set(before)

    def _waiting(self) -> QuerySet[Task]:
        return Task.objects.using(self.store.alias).waiting()

    def take(self, instance: int) -> Claimed | None:
        """Claim the Task of this Instance; return None if it cannot be claimed."""
        with self.store.as_guest():
            return self.store.take(self.uuid, instance)

    def _do_chores(self) -> bool:
        """Do the chores of a daemon; return whether a Task may have become due."""
        store, who = self.store, self.name
        done = store.miss(who=who)
        done += store.drop(who=who)
        if store.graphs.are_live():
            done += store.graphs.fail_dependants(who=who)
            before = self._waiting().count()
            after: int | None = None
            while after != 0:
                ended, after = store.graphs.end(after=after or 0, who=who)
                done += ended
            while store.graphs.undo(who=who):
                pass
            # The nodes that undo others.
            done += self._waiting().count() - before
        return bool(done)

    def start(self, claimed: Claimed) -> None:
        """Record that an attempt has started."""
        self.record(Move(event=Event.START, instance=claimed.instance, attempt=claimed.attempt))

    def record(self, move: Move) -> None:
        """Record a move of a Task that this daemon holds."""
        with self.store.as_guest():
            self.store.record([move._replace(who=self.name)], daemon=self.uuid)

    def note(self, notes: Sequence[Note]) -> None:
        """Write the notes of attempts."""
        if notes:
            with self.store.as_guest():
                self.store.note(notes, daemon=self.uuid)

    def asked(self, claimed: Claimed) -> Ask | None:
        """Return the Ask for the holder of this attempt, or None."""
        for ask in self.store.asked(self.uuid):
            if (ask.instance, ask.attempt) == claimed.key:
                return ask
        return None


# The process of a test while handlers run in it; its state is restored after each.

# The receivers of Django's test client: these fail a request for any exception signalled to them.
_CLIENTS = "request-exception-"


# The webhooks of the handlers that have run in this process, as in Django's mail.outbox.
outbox: list[webhooks_Message] = []


class Process:
    """A context manager around a drain. One attempt may run inside another."""

    def __init__(self) -> None:
        self._capture = LogCapture()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._levels = root.level, [(handler, handler.level) for handler in root.handlers]
        open_root_logger(settings.LOG_LEVEL)
        root.addHandler(self._capture)
        share_caches()
        self._stack.enter_context(kept_in(outbox))
        receivers = got_request_exception.receivers
        self._clients = [each for each in receivers if _is_client(each)]
        self._set_receivers([each for each in receivers if not _is_client(each)])
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
        own = got_request_exception.receivers
        self._set_receivers([*own, *self._clients])
        root = logging.getLogger()
        root.removeHandler(self._capture)
        level, levels = self._levels
        root.setLevel(level)
        for handler, before in levels:
            handler.setLevel(before)

    @contextmanager
    def running(self, context: Context) -> Iterator[Callable[..., Any]]:
        """Prepare this process for an attempt; yield ``call(function, *args)``, which runs it.

        As in a worker, the function finds no context variables of the test.
        """
        outer, self._capture.context = self._capture.context, context
        is_main = threading.current_thread() is threading.main_thread()
        state = _State() if is_main else None
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


class _State(ProcessState):
    """The ProcessState of a worker, except that timers of the test, as for a time-out, go on."""

    def __init__(self) -> None:
        super().__init__([each for each in ENTRIES if each not in TIMERS])
        self._began = time.monotonic()
        self._alarm = signal.getitimer(signal.ITIMER_REAL)

    def restore(self) -> str:
        left, interval = self._alarm
        if left:
            left = max(left - (time.monotonic() - self._began), 0.001)
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        found: str = super().restore()
        return found


def _is_client(receiver: Any) -> bool:
    identity = receiver[0][0]
    return isinstance(identity, str) and identity.startswith(_CLIENTS)


# One attempt in the process of a test: its handler is run as a worker runs it.


class Attempt:
    """Runs the handler of a claimed Task; the caller records its end.

    ``meanwhile()`` runs other Tasks while the handler is paused. With ``is_lost`` a transactional
    attempt is lost right before its commit.
    """

    def __init__(
        self,
        claimed: Claimed,
        member: Member,
        process: Process,
        *,
        meanwhile: Callable[[], object],
        fault: Fault | None = None,
        is_lost: bool = False,
    ) -> None:
        self._claimed, self._member, self._process = claimed, member, process
        self._meanwhile, self._is_lost = meanwhile, is_lost
        self._is_transactional = registry.is_transactional(claimed.type)
        self._isolation = Isolation()
        self._who = f"{member.name} test"
        self._entry = _Entry(self)
        self._checkpoints = Checkpoints(self._who, self._entry, self._isolation, fault)
        self._told: BaseException | None = None
        #: The notes that the handler has made: messages, progress and files.
        self.notes: list[Note] = []

    @property
    def error(self) -> BaseException | None:
        """The exception of the handler, or of its inputs or response; None for none or a sleep."""
        error = self._entry.error or self._told
        return None if isinstance(error, Asleep) else error

    @property
    def steps(self) -> list[str]:
        """The names of the steps that the handler came to."""
        return self._checkpoints.seen

    def run(self) -> Outcome:
        """Run the handler and return its outcome, whatever the handler does.

        Raises AttemptLost at the fault point, and KeyboardInterrupt.
        """
        transaction, report = None, self._report
        if self._is_transactional:
            transaction = Transaction(self._claimed, who=self._who, report=self._report)
            report = transaction.report
            transaction.left = partial(self._isolation.after_commits, settings.DATABASE)
            if self._is_lost:
                transaction.before_commit = self._die
        context = Context(
            self._claimed,
            report=report,
            interruption=self._why_to_end,
            scratch_root=Path(settings.SCRATCH_DIR),
            halting=_Pauses(self),
            keeper=self._checkpoints,
            grower=transaction or self._checkpoints,
            worker=self._who,
        )
        with self._process.running(context) as call, self._isolation:
            try:
                signals.handler_ended.connect(self._note_end, weak=False)
                given = self._claimed, context, transaction, self._entry, self._is_left_open
                outcome: Outcome = call(execution.run, *given)
            finally:
                signals.handler_ended.disconnect(self._note_end)
                context.end()
                context.remove_scratch()
        if isinstance(self.error, (KeyboardInterrupt, AttemptLost)):
            raise self.error
        return outcome

    def _die(self) -> None:
        raise AttemptLost

    def _note_end(self, *, context: Context, exception: BaseException | None, **facts: Any) -> None:
        if context.key == self._claimed.key:
            self._told = exception

    def ended(self, error: BaseException | None) -> None:
        """Call the ``on_commit()`` callbacks of the handler, which has ended."""
        if not isinstance(error, AttemptLost):
            self._isolation.handler_ended(error, but=self._own_transaction())

    def _own_transaction(self) -> str | None:
        """The alias on which ATP has opened a transaction for the handler; None if on none."""
        return settings.DATABASE if self._is_transactional else None

    def _is_left_open(self) -> list[str]:
        return self._isolation.left_open(but=self._own_transaction())

    def _why_to_end(self) -> str | None:
        asked = self._member.asked(self._claimed)
        return asked.request if asked and asked.request in (CANCEL, RELEASE) else None

    def pause(self) -> None:
        """Run other Tasks while the handler is paused. Raises PausedInTransaction."""
        if self._isolation.is_inside():
            raise PausedInTransaction("A pause inside a transaction would keep it open.")
        self._meanwhile()

    # The messages of the handler

    def _report(self, kind: str, *values: Any, at: float | None = None) -> None:
        note = partial(
            Note,
            instance=self._claimed.instance,
            attempt=self._claimed.attempt,
            who=self._who,
            transactional=self._is_transactional,
        )
        if kind == "log":
            level, text = values
            said = datetime.fromtimestamp(at or time.time(), UTC)
            self.notes.append(note(messages=(Message(time=said, level=level, text=text),)))
        elif kind == "progress":
            fraction, text = values
            self.notes.append(note(progress=fraction, progress_message=text))
        elif kind == "left_out":
            self.notes.append(note(left_out=values[0]))
        elif kind == "file":
            self.notes.append(note(files=values))


class _Entry:
    """A context manager around the handler alone; it keeps the exception of the handler."""

    def __init__(self, attempt: Attempt) -> None:
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
    """The pauses of an attempt: nobody else asks for one; in its own, other Tasks run."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def look(self) -> None:
        pass

    @contextmanager
    def own(self, message: str) -> Iterator[None]:
        self._attempt.pause()
        yield


def is_recorded(outcome: Outcome) -> bool:
    """Whether a transactional attempt has written its end itself, or can write no end."""
    return outcome.kind in (Kind.CONCLUDED, Kind.GONE)


# Isolation: a handler in a test finds its connections as in a worker: without a transaction.
#
# If the test has a transaction open, each attempt runs inside a savepoint of it. The handler's
# ``on_commit()`` callbacks are called when the handler has ended. If the database refuses a
# statement of the handler, only that savepoint is rolled back.

logger = logging.getLogger("atp.worker")

# The driver's status of a transaction in which a statement has failed.
_IN_ERROR = 3


class Isolation:
    """A context manager around one attempt, entered in the thread that runs the handler."""

    def __init__(self) -> None:
        self._guarded: dict[str, _Guarded] = {}

    def __enter__(self) -> Self:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                self._guarded[connection.alias] = _Guarded(connection)
        return self

    def __exit__(self, *raised: object) -> None:
        for guarded in self._guarded.values():
            guarded.end()
        for connection in connections.all(initialized_only=True):
            if connection.alias not in self._guarded and _has_transaction(connection):
                _end_transaction(connection)

    def is_inside(self) -> bool:
        """Whether the handler has a transaction open on the queue's database."""
        return self._is_open(connections[settings.DATABASE])

    def left_open(self, *, but: str | None = None) -> list[str]:
        """Return the aliases, except ``but``, on which the handler has a transaction open."""
        found = connections.all(initialized_only=True)
        return [each.alias for each in found if each.alias != but and self._is_open(each)]

    def _is_open(self, connection: Any) -> bool:
        guarded = self._guarded.get(connection.alias)
        return _has_transaction(connection) if guarded is None else guarded.is_open

    def handler_ended(self, error: BaseException | None, *, but: str | None = None) -> None:
        """Call the handler's ``on_commit()`` callbacks on all databases except ``but``.

        Raises NotPossible if the handler raised nothing, but left the test's transaction
        unusable.
        """
        for alias, guarded in self._guarded.items():
            if alias != but and not guarded.is_open:
                guarded.after_commits()
            if error is None and guarded.is_broken:
                raise NotPossible(
                    "The database has refused a statement of this handler, which went on. Here "
                    "that is the end of the test's transaction, of which the handler is a part: "
                    "put that statement into transaction.atomic(), or use TransactionTestCase."
                )

    def after_commits(self, alias: str) -> None:
        """Call the ``on_commit()`` callbacks of a transactional attempt, after its commit."""
        guarded = self._guarded.get(alias)
        if guarded is not None and not guarded.is_open:
            guarded.after_commits()


class _Guarded:
    """A connection on which a test has a transaction open."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._block: Any = transaction.atomic(using=connection.alias)
        # Marked as a block of TestCase, so that a durable block may be inside it.
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
            getattr(info, "transaction_status", None) == _IN_ERROR
        )

    def after_commits(self) -> None:
        """Call the ``on_commit()`` callbacks of the handler, in order."""
        while not self.is_broken and len(self._connection.run_on_commit) > self._callbacks:
            _, function, is_robust = self._connection.run_on_commit.pop(self._callbacks)
            try:
                function()
            except Exception:
                if not is_robust:
                    raise
                logger.exception("after a commit")

    def end(self) -> None:
        """Leave the savepoint: the test's transaction goes on."""
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
    """Roll back the transaction that a handler left open, without closing the connection.

    A database in memory would be lost with its connection.
    """
    connection.in_atomic_block = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks = [], []
    connection.run_on_commit = []
    connection.rollback()
    connection.set_autocommit(True)
