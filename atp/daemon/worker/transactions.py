"""A worker's database connections, and what it writes itself: transactions and checkpoints."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import ModuleType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from django.core.files.storage import storages
from django.db import InterfaceError, OperationalError, connections, reset_queries, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ... import messages
from ...authoring.logs import exception_message
from ...authoring.steps import StepContext
from ...conf import settings
from ...exceptions import Interrupted, InvalidGraph, StepInTransaction, TaskGone
from ...graphs.plan import GraphAddition
from ...operations.registry import registry
from ...payload.codec import Payload
from ...states import Event
from ...store import get_store
from ...store.common.base import renewal_of
from ...store.protocol import Graphs, Store
from ...store.values import Attempt, Checkpoint, Message, Move, ProgressUpdate, count_kept_messages
from ..database import is_outage
from ..outcomes import Kind, Outcome
from ..processes import uptime
from ..protocol import Closed

# A worker's database connections, and their reset between one task and the next.


class Connections:
    """The connections that this thread, and no other, opens from now on."""

    def __init__(self) -> None:
        # The KeptConnection of each Django connection; None if its vendor has none.
        self._opened: dict[BaseDatabaseWrapper, KeptConnection | None] = {}
        self._thread = threading.get_ident()
        connection_created.connect(self._add)

    def _add(self, *, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if connection not in self._opened:
            self._opened[connection] = KeptConnection.of(connection)
        kept = self._opened[connection]
        if kept is not None:
            kept.opened()

    def with_transaction(self, *, but: str | None = None) -> list[str]:
        """Return the aliases of the connections with an open transaction, without ``but``."""
        if not self._opened:
            return []
        return [
            connection.alias
            for connection, kept in self._opened.items()
            if connection.alias != but
            and (connection.in_atomic_block if kept is None else kept.has_transaction())
        ]

    def put_back(self, began: float | None = None) -> None:
        """Reset the connections for the next attempt; the last one began at uptime ``began``.

        A connection that cannot be reset, or was left inside a transaction, is closed.
        """
        if not self._opened:
            return
        reset_queries()
        took = 0.0 if began is None else uptime() - began
        keep = settings.KEEP_CONNECTIONS
        for connection, kept in self._opened.items():
            if connection.connection is None:
                if kept is not None and kept.rests and kept.rested() > keep:
                    kept.let_go()
            elif kept is None:
                _refresh(connection)
            else:
                kept.put_back(took)
                if not keep:
                    kept.let_go()

    def rest(self) -> bool:
        """Tell whether any kept connection is unused."""
        return any(kept is not None and kept.rests for kept in self._opened.values())

    def let_go(self) -> None:
        """Close the kept connections that are unused."""
        for kept in self._opened.values():
            if kept is not None:
                kept.let_go()


def _refresh(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that is old, has failed or is in a transaction, as after a request."""
    if connection.in_atomic_block or connection.needs_rollback:
        leave_blocks(connection)
        connection.close()
    else:
        connection.close_if_unusable_or_obsolete()


# A database connection that a worker keeps from task to task, and resets for each.

# After an attempt that took longer than this, in seconds, the connection may be dead.
LONG = 5.0


class KeptConnection:
    """The driver's connection that is kept while Django's connection is closed.

    When Django connects again, it gets the kept one and treats it as a new connection: it
    also calls the project's receivers of ``connection_created``.
    """

    def __init__(self, connection: Any, renewal: ModuleType) -> None:
        self._connection = connection
        self._renewal = renewal
        self._open = connection.get_new_connection
        self._pid = os.getpid()
        # The driver's connection while it is unused, since when, and its parameters.
        self._driver: Any = None
        self._since = 0.0
        self._parameters = _without_password(connection.get_connection_params())
        # The traits that the driver's connection in use had when it was new.
        self._traits: Any = None
        self._traits_of: Any = None
        connection.get_new_connection = self._connect

    @classmethod
    def of(cls, connection: BaseDatabaseWrapper) -> Self | None:
        """Return the only KeptConnection of a connection; None if its vendor supports none."""
        found = getattr(vars(connection).get("get_new_connection"), "__self__", None)
        if isinstance(found, cls):
            return found
        renewal: Any = renewal_of(connection)
        return renewal and cls(connection, renewal)

    @property
    def rests(self) -> bool:
        """Whether the database driver's connection stays open while Django has none."""
        return self._driver is not None

    def rested(self) -> float:
        """Return the time for which the kept connection has been unused, in seconds."""
        return time.monotonic() - self._since

    def opened(self) -> None:
        """Note that Django has connected and initialized the connection."""
        # Code that closes old connections is meant for web requests: disable it.
        self._connection.close_at = None
        driver = self._connection.connection
        if self._traits_of is not driver:
            self._traits, self._traits_of = self._renewal.traits(driver), driver

    def has_transaction(self) -> bool:
        """Tell whether a transaction is open."""
        connection = self._connection
        if connection.in_atomic_block:
            return True
        driver = connection.connection
        return driver is not None and self._renewal.has_transaction(driver)

    def put_back(self, took: float) -> None:
        """Reset and keep the connection after an attempt that ``took`` seconds, or close it."""
        if self._renew(took):
            # Call close() with a replaced _close(), so that a project's own close() runs too.
            self._connection._close = self._rest
            try:
                self._connection.close()
            finally:
                del self._connection._close
        else:
            self._close()

    def _renew(self, took: float) -> bool:
        connection = self._connection
        if connection.in_atomic_block or connection.connection is not self._traits_of:
            return False
        limit = contextlib.nullcontext()
        if took > LONG:
            limit = self._renewal.bound(connection.connection)
        try:
            with limit:
                return self._renewal.renew(connection, self._traits)
        except Exception:  # whatever is wrong, a new connection will not have it
            return False

    def _rest(self) -> None:
        self._driver, self._since = self._connection.connection, time.monotonic()

    def let_go(self) -> None:
        """Close the unused connection, if any."""
        if self._driver is None:
            return
        self._connection.connection, self._driver = self._driver, None
        self._close()

    def _close(self) -> None:
        leave_blocks(self._connection)
        self._traits = self._traits_of = None
        with contextlib.suppress(Exception):
            self._connection.close()
        self._connection.connection = None

    def _connect(self, parameters: Mapping[str, Any]) -> Any:
        if os.getpid() != self._pid:
            return self._open(parameters)  # a fork: the kept connection belongs to its parent
        if self._driver is not None:
            same = _without_password(parameters) == self._parameters
            if same and self._renewal.is_alive(self._driver, self.rested()):
                driver, self._driver = self._driver, None
                return driver
            self.let_go()
        # A password may change: the connection stays the same.
        self._parameters = _without_password(parameters)
        return self._open(parameters)


def leave_blocks(connection: BaseDatabaseWrapper) -> None:
    """Have Django forget the atomic blocks that a handler has left open.

    Otherwise it would keep the closed connection until the end of the block, and refuse the next
    block that is durable: it looks for others before it connects.
    """
    connection.in_atomic_block = False
    connection.atomic_blocks = []


def _without_password(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name != "password"}


# What a worker writes itself: transactional Types, checkpoints, additions to graphs

Answer = TypeVar("Answer")
# When a handler reported something, the kind of the report, and its values.
Said: TypeAlias = tuple[float, str, tuple[Any, ...]]


class Delaying(Protocol):
    """Delays interruptions of a handler."""

    def put_off(self) -> AbstractContextManager[None]: ...


class WritingMarks(Protocol):
    """Keeps, for each slot, whether its worker must not be stopped now."""

    def write(self, slot: int, is_writing: bool, /) -> None: ...


# Checkpoints of steps, transactions of handlers, additions to graphs: a worker writes them itself.
#
# The worker uses the handler's connection, so a step in a transaction is committed together with
# the handler's writes (G17). Normally only a daemon's dispatcher writes to the queue. These
# writes are one exception; the ends of transactional Types are the other.

# If another session has locked the Task, the worker tries again after LOOK_AGAIN seconds, then
# after ever longer pauses, up to LOOK_SELDOM. If the database is down, it pauses LOOK_SELDOM.
LOOK_AGAIN, LOOK_SELDOM = 0.01, 0.5
# An attempt that waits for longer than this, in seconds, writes that into its log.
TELL_AFTER = 1.0


@contextmanager
def end_in_forks() -> Iterator[None]:
    """End a fork that the handler makes in this block, so that it ends no transaction.

    A fork has the same connection: its commit or rollback would be that of its parent.
    """
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(0)


class Checkpoints:
    """The checkpoints of one worker's attempts. ``who`` is the worker's name in log records."""

    def __init__(self, who: str, interruption: Delaying, page: WritingMarks, slot: int) -> None:
        self._who = who
        self._interruption = interruption
        self._page = page
        self._slot = slot
        # The previous worker of this slot may have died while it wrote a checkpoint.
        page.write(slot, False)

    def format(self, context: StepContext) -> str:
        return registry.get(context.type).serializer

    def find(self, context: StepContext, name: str) -> Checkpoint | None:
        self._refuse_in_transaction(name)
        if context.attempt == 1:
            return None
        steps, instance = get_store().steps, context.key[0]
        return self._repeat_step(context, name, lambda: (steps.find(instance, name),))[0]

    def begin(self, context: StepContext, name: str, delay: timedelta | None = None) -> Checkpoint:
        self._refuse_in_transaction(name)
        steps, key = get_store().steps, context.key
        return self._repeat_step(
            context, name, lambda: steps.begin(*key, name, who=self._who, delay=delay)
        )

    def keep(
        self, context: StepContext, name: str, payload: Payload, took: timedelta | None = None
    ) -> None:
        steps, key = get_store().steps, context.key
        self._repeat_step(context, name, lambda: steps.keep(*key, name, payload, took=took))

    @contextmanager
    def transaction(self, context: StepContext, name: str) -> Iterator[None]:
        """Run the block in the transaction of a step; nobody stops the worker during it.

        If the Task is locked or the database is down, wait before the transaction begins.
        """
        with self._block(context, f"the checkpoint of step {name}"):
            yield

    @contextmanager
    def fenced(self, context: StepContext) -> Iterator[None]:
        """Run the block in a transaction whose last statement locks the Task of the attempt."""
        if self.is_in_transaction():
            raise StepInTransaction(
                "context.transaction() is inside another transaction, with which it would be "
                "rolled back. Call it outside; a transactional Type has one for its whole handler."
            )
        what = "a transaction of the handler"
        with self._block(context, what):
            yield
            steps, key = get_store().steps, context.key
            self._repeat_write(context, what, lambda: steps.hold(*key))

    @contextmanager
    def _block(self, context: StepContext, what: str) -> Iterator[None]:
        store: Any = get_store()
        try:
            with ExitStack() as stack:
                # Each try needs a context manager of its own.
                self._repeat_write(
                    context, what, lambda: stack.enter_context(store.atomic()) or True
                )
                with end_in_forks():
                    yield
                with self._interruption.put_off():
                    stack.close()
        finally:
            self._page.write(self._slot, False)

    def extend(self, context: StepContext, addition: GraphAddition) -> None:
        """Write an attempt's addition to its graph. Raises InvalidGraph inside a transaction."""
        if self.is_in_transaction():
            raise InvalidGraph(
                "context.graph() is inside a transaction, which would keep what is locked for "
                "it. Call it outside; of a transactional Type it is written with the end."
            )
        graphs = get_store().graphs
        self._repeat(
            context,
            lambda: graphs.extend(addition, who=self._who),
            messages.addition_waits,
            messages.addition_refused,
        )

    def _repeat_step(
        self, context: StepContext, name: str, call: Callable[[], Answer | None]
    ) -> Answer:
        return self._repeat_write(context, f"the checkpoint of step {name}", call)

    def _repeat_write(
        self, context: StepContext, what: str, call: Callable[[], Answer | None]
    ) -> Answer:
        waits = partial(messages.write_waits, what)
        refused = partial(messages.write_refused, what)
        return self._repeat(context, call, waits, refused)

    def _repeat(
        self,
        context: Any,
        call: Callable[[], Answer | None],
        waits: Callable[[str], str],
        refused: Callable[[], str],
    ) -> Answer:
        """Repeat ``call()`` until its answer is true, and return that. Raises Interrupted.

        A locked Task, or a database that is down, does not end the attempt: the result of a
        step may be at hand, and is written as soon as that is possible.
        """
        connection = connections[settings.DATABASE]
        began, pause, is_told = uptime(), LOOK_AGAIN, False
        while True:
            try:
                with self._interruption.put_off(), self._unstopped(connection):
                    answer = call()
                if answer:
                    return answer
                why = ""
            except TaskGone:
                raise Interrupted(refused()) from None
            except (OperationalError, InterfaceError) as error:
                waited = uptime() - began
                if connection.in_atomic_block or waited > settings.LEASE:
                    raise
                connection.close_if_unusable_or_obsolete()
                why, pause = " ".join(str(error).split()), LOOK_SELDOM
            if uptime() - began > TELL_AFTER and not is_told:
                is_told = True
                context.log(waits(why), logging.WARNING)
            context.end_if_asked()
            time.sleep(pause)
            pause = min(2 * pause, LOOK_SELDOM)

    @contextmanager
    def _unstopped(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        """Forbid the supervisor to stop the worker in the block, or until its transaction ends."""
        self._page.write(self._slot, True)
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if not (is_written and connection.in_atomic_block):
                self._page.write(self._slot, False)

    def _refuse_in_transaction(self, name: str) -> None:
        if self.is_in_transaction():
            raise StepInTransaction(
                f"Step {name!r} is inside a transaction: its checkpoint would be rolled back with "
                "that. Call it outside, or make the step the transaction: step_in_transaction()."
            )

    def is_in_transaction(self) -> bool:
        """Tell whether the handler has a transaction open."""
        connection = connections[settings.DATABASE]
        is_manual = connection.connection is not None and not connection.get_autocommit()
        return connection.in_atomic_block or is_manual


# The transaction of a transactional Type: the writes of its handler, and the FINISHED state.
#
# The worker commits both or neither (G7). Only the last statements lock the Task. So while the
# handler runs, the dispatcher can record and renew, and other daemons can sweep.

logger = logging.getLogger("atp.worker")

# Reports of these kinds are committed with the end of the attempt, and not sent before.
_KEPT = ("log", "file")


class Transaction:
    """The transaction of one attempt.

    ``who`` signs its end; ``report(kind, …)`` sends to the dispatcher.
    """

    def __init__(self, attempt: Attempt, *, who: str, report: Callable[..., object]) -> None:
        self._attempt = attempt
        self._who = who
        self._report = report
        self._said: list[Said] = []
        # The handler's additions to its graph.
        self._additions: list[GraphAddition] = []
        # Whether everything is written, and whether the commit is known to have succeeded.
        self._is_written = self._committed = False
        # Whether nothing was committed, and the dispatcher has the reports.
        self._is_told = False
        # Called when the transaction has begun, when the handler has returned, and when it has
        # ended in any way: then no message of it may be held back.
        self.begun = self.before_commit = self.say_all = lambda: None
        # Called after the block of the transaction.
        self.left = lambda: None

    def report(self, kind: str, *values: Any) -> None:
        """Take a report of the handler: log lines and files wait for the end, others are sent."""
        if self._committed:
            self._refuse(kind, values)
        elif kind in _KEPT and not self._is_told:
            self._said.append((time.time(), kind, values))
        elif kind == "left_out" and not self._is_told:
            self._said = _without_the_middle(self._said, *values)
        else:
            self._report(kind, *values)

    def _refuse(self, kind: str, values: Sequence[Any]) -> None:
        """Refuse a report after the commit, which has ended the Instance."""
        if kind == "file":
            self._delete(values[0]["path"])
            raise RuntimeError("after the commit no file can be published")
        if kind == "log":
            logger.warning("%s: said after the commit: %s", self._attempt.uuid, values[-1])

    def extend(self, context: StepContext, addition: GraphAddition) -> None:
        """Take an addition of the handler to its graph, to be written with the end."""
        if self._committed:
            raise RuntimeError("after the commit nothing can be added to a graph")
        self._additions.append(addition)

    def run(self, call: Callable[[], Outcome]) -> Outcome:
        """Run ``call()``, which returns an :class:`Outcome`, and commit everything or nothing.

        If the call raises, roll everything back and raise the exception again.
        """
        outcome, used = None, None
        connection = connections[settings.DATABASE]
        try:
            with transaction.atomic(using=settings.DATABASE, durable=True):
                transaction.on_commit(self._note_commit, using=settings.DATABASE)
                used = connection.connection
                self.begun()
                with end_in_forks():
                    outcome = call()
                if connection.closed_in_transaction:
                    raise RuntimeError("the handler closed its connection to the database")
                self.before_commit()
                self.say_all()
                self._conclude(outcome)
                self._is_written = True
            self.left()
            if not self._committed:
                raise RuntimeError("the handler left an atomic block open")
        except TaskGone:
            self._discard(outcome)
            return self._gone()
        except BaseException as error:
            if self._committed:  # a function of the handler's on_commit() has failed
                logger.exception("%s: after the commit", self._attempt.uuid)
                return Outcome(Kind.CONCLUDED)
            is_cut = _is_cut(error, connection, used)
            if not (is_cut and self._is_written):  # otherwise the commit may have succeeded
                self._discard(outcome)
                self._tell_dispatcher()
            if not is_cut:
                raise
            told = f"{messages.no_connection()}: {' '.join(exception_message(error).split())}"
            return Outcome(Kind.CUT if used is not None else Kind.SHUT_OUT, told)
        return Outcome(Kind.CONCLUDED)

    def _note_commit(self) -> None:
        self._committed = True
        # Even if the dispatcher has died, the handler's on_commit() functions have to run.
        with contextlib.suppress(Closed):
            self._report("committed")

    def _conclude(self, outcome: Outcome) -> None:
        instance, attempt = self._attempt.key
        store = get_store()
        if self._additions:
            self._extend(store.graphs)
        facts: dict[str, Any] = {"instance": instance, "attempt": attempt, "who": self._who}
        kept = registry.keeps(self._attempt.type)
        end = Move(event=Event.FINISH, response=outcome.response, kept=kept, **facts)
        messages, files = self._messages(store), self._files()
        note = (
            ProgressUpdate(messages=messages, files=files, **facts) if messages or files else None
        )
        store.records.conclude(end, note=note)

    def _extend(self, graphs: Graphs) -> None:
        """Write the handler's additions to its graph; wait while other sessions lock the rows."""
        began, pause, is_told = uptime(), LOOK_AGAIN, False
        while not self._is_extended(graphs):
            if uptime() - began > TELL_AFTER and not is_told:
                is_told = True
                self._report("log", logging.WARNING, messages.addition_waits())
            time.sleep(pause)
            pause = min(2 * pause, LOOK_SELDOM)

    def _is_extended(self, graphs: Graphs) -> bool:
        with transaction.atomic(using=settings.DATABASE):
            for addition in self._additions:
                if graphs.extend(addition, who=self._who, ends=True) is None:
                    # Release all locks meanwhile, or two attempts could wait for each other.
                    transaction.set_rollback(True, using=settings.DATABASE)
                    return False
        return True

    def _messages(self, store: Store) -> tuple[Message, ...]:
        said = [(at, *values) for at, kind, values in self._said if kind == "log"]
        if not said:
            return ()
        # Convert the times to the database's clock.
        offset = store.clock_offset()
        return tuple(
            Message(time=datetime.fromtimestamp(at, UTC) + offset, level=level, text=text)
            for at, level, text in said
        )

    def _files(self) -> tuple[dict[str, Any], ...]:
        return tuple(values[0] for _, kind, values in self._said if kind == "file")

    def _tell_dispatcher(self) -> None:
        """Send the kept reports to the dispatcher, because nothing was committed."""
        self.say_all()
        self._is_told = True
        for at, kind, values in self._said:
            self._report(kind, *values, at=at)

    def _gone(self) -> Outcome:
        """Record that this attempt was rolled back because its Task was taken away; return GONE."""
        instance, attempt = self._attempt.key
        try:
            store = get_store()
            late = Move(
                event=Event.FINISH,
                instance=instance,
                attempt=attempt,
                time=store.now(),
                who=self._who,
                transactional=True,
            )
            store.records.keep_late([late])
            for file in self._files():
                self._delete(file["path"])
        except Exception:
            logger.exception("%s: its refusal cannot be kept", self._attempt.uuid)
        return Outcome(Kind.GONE, messages.rolled_back())

    def _discard(self, outcome: Outcome | None) -> None:
        """Remove the file of a Response that was not committed."""
        response: Any = outcome and outcome.response
        if response and response.file:
            self._delete(response.file)

    @staticmethod
    def _delete(path: str) -> None:
        try:
            storages[settings.STORAGE].delete(path)
        except Exception as error:  # storages have errors of their own
            logger.warning("%s cannot be removed: %s", path, error)


def _is_cut(error: BaseException, connection: BaseDatabaseWrapper, used: Any) -> bool:
    """Tell whether the error means that the connection ``used`` is lost.

    ``used`` is None if there was no connection to begin with; that counts as lost. At the end
    of a transaction Django may have opened another connection in place of a lost one.
    """
    if not is_outage(error):
        return False
    return used is None or connection.connection is not used or not connection.is_usable()


def _without_the_middle(said: list[Said], left_out: int) -> list[Said]:
    """Return the reports with one line in place of the messages between the first and the last."""
    first, last = count_kept_messages()
    logs = [each for each in said if each[1] == "log"]
    middle = logs[first:-last]
    if not middle:
        return said
    text = f"{left_out} messages of this attempt are left out here"
    at, kind, _ = middle[0]
    line = (at, kind, (logging.WARNING, text))
    files = [each for each in said if each[1] != "log"]
    return [*files, *logs[:first], line, *logs[-last:]]
