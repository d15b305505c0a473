"""Runs all due Tasks in the test's process, on ``drain()`` or inline at each commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, wraps
from itertools import takewhile
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from .. import messages
from ..commands import CANCEL
from ..conf import settings
from ..daemon import outcomes
from ..daemon.outcomes import CUT_SHORT, Kind, Outcome
from ..exceptions import ATPError
from ..models import Instance, LogRecord, Response
from ..models import Kind as LogKind
from ..states import Event, Reason, State
from ..store import get_store
from ..store.values import Attempt, Move
from .attempt import (
    AttemptLost,
    Fault,
    InProcessDaemon,
    Loss,
    NotPossible,
    Process,
    TestAttempt,
    has_recorded_end,
)

# The methods of a Django connection that after_commit() replaces.
_METHODS = ("savepoint_commit", "savepoint_rollback")
# Replaces the savepoint id of a block without a savepoint, because Django calls no method for it.
_NO_SAVEPOINT = "no savepoint"
# The number of rows in one query, because SQLite limits the length of a list.
PORTION = 500
# Added to the delay of a retry, because the database's clock has advanced since it was recorded.
_MARGIN = timedelta(seconds=1)
# The outcomes that are not failures, because the handler only requests something from ATP.
_NOT_FAILURES = (Kind.RETRY, Kind.DEFER, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.INTERRUPTED)


# Commits: the times at which daemons would see an enqueue, even if the test never commits.


def after_commit(alias: str, call: Callable[[], object]) -> None:
    """Call ``call()`` at the outermost commit, or at once if no transaction is open.

    TestCase's own transactions do not count, because nobody commits them. Inside such a transaction
    each ``atomic()`` in the tested code is a savepoint, and the end of the outermost ``atomic()``
    counts as the commit.
    """
    connection: Any = connections[alias]
    if all(_belongs_to_test(block) for block in connection.atomic_blocks):
        call()
    elif not any(_belongs_to_test(block) for block in connection.atomic_blocks):
        if not any(function is call for _, function, _ in connection.run_on_commit):
            transaction.on_commit(call, using=alias)
    elif "savepoint_commit" not in vars(connection):
        connection.savepoint_commit = partial(_commit, connection, call)
        connection.savepoint_rollback = partial(_rollback, connection)
        # Django keeps a savepoint id for each block except the outermost of all.
        tested = [not _belongs_to_test(block) for block in connection.atomic_blocks].index(True) - 1
        if connection.savepoint_ids[tested] is None:
            connection.savepoint_ids[tested] = _NO_SAVEPOINT


def forget(alias: str) -> None:
    """Cancel the call that ``after_commit()`` planned for the end of the outermost savepoint."""
    connection: Any = connections[alias]
    for name in _METHODS:
        vars(connection).pop(name, None)
    ids = connection.savepoint_ids
    ids[:] = [None if sid == _NO_SAVEPOINT else sid for sid in ids]


def _commit(connection: Any, call: Callable[[], object], sid: str) -> None:
    """Release a savepoint, and make the call if this savepoint is the outermost."""
    if sid != _NO_SAVEPOINT:
        type(connection).savepoint_commit(connection, sid)
    if all(_belongs_to_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)
        call()


def _rollback(connection: Any, sid: str) -> None:
    if sid == _NO_SAVEPOINT:
        connection.needs_rollback = True
        # Django releases the savepoint next.
        connection.savepoint_commit = lambda _: forget(connection.alias)
        return
    type(connection).savepoint_rollback(connection, sid)
    if all(_belongs_to_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)


def _belongs_to_test(block: Any) -> bool:
    return bool(block._from_testcase)


# Inline: enqueued Instances run at the commit, in the test's process.


class Inline:
    """A context manager that calls ``drain()`` at each commit that might have made a Task due.

    If ``drain()`` raises an exception, the end of the block raises the first one. As in production,
    the code that enqueues does not see the exception. If another drain is running at the commit,
    ``drain()`` is called afterwards.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        self._drain = drain
        self._is_draining = False
        self._is_open = False
        self._errors: list[BaseException] = []

    def __enter__(self) -> None:
        store: Any = get_store()
        methods = [(store.enqueueing, "enqueue"), (store.records, "record")]
        methods += [(store.control, name) for name in ("change", "open", "cancel")]
        methods += [(store.graphs, "submit"), (store.schedules, "backfill")]
        # The attributes that an outer Inline has set on each object, or None.
        self._before = [(owner, name, vars(owner).get(name)) for owner, name in methods]
        for owner, name in methods:
            setattr(owner, name, self._watch(getattr(owner, name)))
        self._is_open = True

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._is_open = False
        for owner, name, before in self._before:
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        forget(settings.DATABASE)
        if kind is None and self._errors:
            raise self._errors[0]

    def _watch(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            self.call()
            return result

        return watched

    def call(self) -> None:
        """Plan a drain for the commit, or for the end of a drain that is running."""
        if self._is_draining or not self._is_open:
            return
        if drains.are_running:
            drains.call_after(self.call)
        else:
            after_commit(settings.DATABASE, self._drain_now)

    def _drain_now(self) -> None:
        if self._is_draining:
            return
        if drains.are_running:
            self.call()
            return
        with self._draining():
            try:
                self._drain()
            except Exception as error:
                self._errors.append(error)

    @contextmanager
    def _draining(self) -> Iterator[None]:
        self._is_draining = True
        try:
            yield
        finally:
            self._is_draining = False


# Runs: what a drain's attempts resulted in.


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of one attempt that a test ran.

    ``state`` is the Instance's state right after the attempt, and ``reason`` is why the Instance is
    FAILED. If the Instance is FINISHED, ``response`` is the handler's return value as the queue
    stores it, and ``files`` describes the published files. ``log`` contains the attempt's log
    messages, one per line. ``error`` is the exception that the handler raised. ``instance`` is the
    row after the drain, or None if its Type keeps no rows or somebody has deleted the row.
    """

    type: str
    uuid: UUID
    attempt: int
    state: str
    reason: str = ""
    response: Any = None
    files: Sequence[dict[str, Any]] = ()
    log: str = ""
    error: BaseException | None = field(default=None, compare=False)
    instance: Instance | None = field(default=None, compare=False)


def runs_of(attempts: Iterable[tuple[Attempt, BaseException | None]]) -> list[Run]:
    """Return a Run for each attempt, in order.

    Each attempt is a pair of the claimed Task and the handler's exception, or None.
    """
    attempts = list(attempts)
    keys = list(dict.fromkeys(claimed.instance for claimed, _ in attempts))
    instances: dict[int, Instance] = {}
    responses: dict[int, Response] = {}
    records: dict[tuple[int, int | None], list[LogRecord]] = defaultdict(list)
    for first in range(0, len(keys), PORTION):
        some = keys[first : first + PORTION]
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        instances |= rows.in_bulk(some)
        answers = Response.objects.using(settings.DATABASE).filter(pk__in=some)
        responses |= {answer.pk: answer for answer in answers}
        log = LogRecord.objects.using(settings.DATABASE).filter(instance__in=some)
        for record in log.order_by("pk"):
            records[record.instance_id, record.attempt].append(record)  # type: ignore[index]
    return [
        _make_run(
            claimed,
            error,
            instances.get(claimed.instance),
            responses.get(claimed.instance),
            records[claimed.key],
        )
        for claimed, error in attempts
    ]


def _make_run(
    claimed: Attempt,
    error: BaseException | None,
    instance: Instance | None,
    response: Response | None,
    records: Sequence[LogRecord],
) -> Run:
    texts = [record.message for record in records if record.kind == LogKind.MESSAGE]
    transitions = [record for record in records if record.event]
    # A later redrive has the same attempt number.
    transitions = list(takewhile(lambda record: record.event != Event.REDRIVE, transitions))
    # Without records the Instance has FINISHED and was removed at once.
    state = transitions[-1].state if transitions else str(State.FINISHED)
    is_last = instance is not None and instance.attempt == claimed.number
    kept_response = response if is_last and state == State.FINISHED else None
    if state != State.FAILED or instance is None or not is_last:
        reason = ""
    else:
        reason = str(instance.reason)
    return Run(
        type=claimed.type,
        uuid=claimed.uuid,
        attempt=claimed.number,
        state=str(state),
        reason=reason,
        response=kept_response.value if kept_response else None,
        files=kept_response.files if kept_response else (),
        log="\n".join(texts),
        error=error,
        instance=instance,
    )


# Draining: claiming, running and recording all due Tasks in the test's process.


@dataclass(frozen=True, kw_only=True)
class DrainOptions:
    """The arguments of :meth:`..kit.Kit.drain`, which explains them."""

    most: int = 1000
    raises: bool = True
    retries: bool = False
    twice: bool = False
    lose: Loss | Fault | None = None
    # True if all due Tasks run before a handler's exception is raised.
    runs_all: bool = False


class Drain:
    """One drain. ``run()`` runs all due Tasks, and ``work()`` runs a single attempt."""

    def __init__(self, daemon: InProcessDaemon, options: DrainOptions) -> None:
        self._daemon, self._options = daemon, options
        self._process = Process()
        self._attempts: list[tuple[Attempt, BaseException | None]] = []
        # The keys of Instances that have run, because ``twice`` loses only their first attempt.
        self._lost: set[int] = set()
        self._steps: list[str] = []
        self._faults_reached = 0
        self._errors: list[BaseException] = []

    @property
    def runs(self) -> list[Run]:
        """A Run for each attempt of this drain so far, in order."""
        return runs_of(self._attempts)

    def run(self) -> list[Run]:
        """Run Tasks until none is due, and return a Run for each attempt, in order."""
        with self._process, self._daemon:
            self._run_due()
            if self._options.lose:
                self._daemon.lost = messages.lost_in_test()
        self._check_fault()
        if self._errors:
            raise self._errors[0]
        return self.runs

    def work(self, instance: int, attempt: int) -> Run:
        """Run the Instance's attempt with this number.

        Earlier attempts are recorded as retries, but their handlers do not run.
        """
        with self._process, self._daemon:
            claimed = self._claim_instance(instance)
            while claimed.number < attempt:
                self._daemon.start(claimed)
                message = messages.skipped_in_test()
                retry = Move(Event.RETRY, *claimed.key, message=message, delay=timedelta(0))
                self._daemon.record(retry)
                claimed = self._claim_instance(instance)
            self._perform(claimed)
        return self.runs[-1]

    def _claim_instance(self, instance: int) -> Attempt:
        claimed = self._daemon.take(instance)
        if claimed is None:
            raise NotPossible(f"Instance {instance} has no waiting Task that the test could claim.")
        return claimed

    def _run_due(self) -> None:
        while (claimed := self._daemon.claim()) is not None:
            if len(self._attempts) >= self._options.most:
                raise EndlessDrain(
                    f"{self._options.most} attempts were run, and a Task of {claimed.type!r} is "
                    "still due. Check whether a task enqueues itself. If not, pass a larger most=."
                )
            self._perform(claimed)

    def _perform(self, claimed: Attempt) -> None:
        """Run an attempt and record its end, or lose the attempt. Raise the handler's exception."""
        options = self._options
        number = len(self._attempts)
        self._attempts.append((claimed, None))
        if options.lose == "before":
            return
        dies_once = options.twice and claimed.instance not in self._lost
        self._lost.add(claimed.instance)
        self._daemon.start(claimed)
        attempt = TestAttempt(
            claimed,
            self._daemon,
            self._process,
            meanwhile=self._run_due,
            fault=options.lose if isinstance(options.lose, Fault) else None,
            is_lost=dies_once or options.lose == "after",
        )
        outcome, is_hit = self._run_or_lose(attempt)
        self._attempts[number] = claimed, None if is_hit else attempt.error
        error = self._record_end(claimed, attempt, outcome, is_lost=dies_once, is_hit=is_hit)
        if error is not None and options.raises:
            where = f"attempt {claimed.number} of {claimed.type}, inputs {claimed.data[:500]}"
            error.add_note(f"ATP: {where}")
            if not options.runs_all:
                raise error
            self._errors.append(error)

    def _run_or_lose(self, attempt: TestAttempt) -> tuple[Outcome | None, bool]:
        """Run an attempt, and return its outcome and whether a fault point lost the attempt.

        The outcome of a lost attempt is None.
        """
        try:
            return attempt.run(), False
        except AttemptLost:
            self._faults_reached += 1
            return None, True
        finally:
            self._steps += attempt.steps

    def _record_end(
        self,
        claimed: Attempt,
        attempt: TestAttempt,
        outcome: Outcome | None,
        *,
        is_lost: bool,
        is_hit: bool,
    ) -> BaseException | None:
        """Record the end of an attempt, and return the exception that the drain raises, or None."""
        if outcome is None or not has_recorded_end(outcome):
            self._daemon.record_progress(attempt.notes)
        if is_lost:
            message = messages.lost_in_test()
            self._daemon.record(outcomes.lost(message, claimed))
        if is_lost or is_hit or self._options.lose == "after" or outcome is None:
            is_no_failure = outcome is None or outcome.kind in _NOT_FAILURES
            return None if is_no_failure or is_hit else attempt.error
        if has_recorded_end(outcome):
            return None
        transition = self._transition_for(claimed, outcome)
        self._daemon.record(transition)
        is_retry = transition.event == Event.RETRY
        if is_retry and self._options.retries and transition.delay is not None:
            passed = transition.delay + _MARGIN
            self._daemon.store.rehearsals.let_pass(passed, instances=(claimed.instance,))
        return attempt.error if self._is_worth_raising(outcome, transition) else None

    def _transition_for(self, claimed: Attempt, outcome: Outcome) -> Move:
        """Return the transition for an outcome, or for a command that interrupted the attempt."""
        command = self._daemon.command_for(claimed) if outcome.kind in CUT_SHORT else None
        if command is not None and command.request == CANCEL:
            message = messages.cancelled(command.who)
            return outcomes.cancelled(message, claimed, outcome)
        if command is not None and outcome.kind is Kind.INTERRUPTED:
            message = messages.command_sent(command.request)
            return Move(Event.RELEASE, *claimed.key, message=message)
        return outcomes.move(outcome, claimed)

    def _is_worth_raising(self, outcome: Outcome, transition: Move) -> bool:
        """Return True if the exception is a failure, not just the handler's request to ATP."""
        if transition.event == Event.FAIL:
            return transition.reason != Reason.CANCELLED
        is_retried = transition.event == Event.RETRY and self._options.retries
        return not (outcome.kind in _NOT_FAILURES or is_retried)

    def _check_fault(self) -> None:
        lose = self._options.lose
        if isinstance(lose, Fault) and not self._faults_reached:
            steps: Sequence[str] = list(dict.fromkeys(self._steps))
            raise AssertionError(
                f"No attempt reached the fault point {lose.point!r}. "
                f"Steps: {', '.join(steps) or 'none'}."
            )


# One drain at a time: if a commit needs a drain while one is running, the new drain runs later.


class Drains:
    """The drains that are running in this process, one inside another.

    The global object ``drains`` is the only instance.
    """

    def __init__(self) -> None:
        self._depth = 0
        # The calls to make at the end of the outermost drain, in order, each once.
        self._after: dict[Callable[[], object], None] = {}

    @property
    def are_running(self) -> bool:
        """Return True if a drain is running. Its handlers' enqueues are then part of that drain."""
        return self._depth > 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block as a drain. At the end of the outermost drain, make the planned calls."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                calls, self._after = self._after, {}
                for call in calls:
                    call()

    def call_after(self, call: Callable[[], object]) -> None:
        """Plan a call for the end of the outermost drain. Ignore a call that is already planned."""
        self._after[call] = None


drains = Drains()


class EndlessDrain(ATPError):
    """A drain had more due attempts than ``most`` allows, perhaps as a task enqueues itself."""
