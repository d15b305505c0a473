"""Running all due Tasks in the test's process; inline at commit."""

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
from ..daemon.shared import outcome as outcomes
from ..daemon.shared.outcome import CUT_SHORT, Kind, Outcome
from ..exceptions import ATPError
from ..models import Instance, LogRecord, Response
from ..models import Kind as models_Kind
from ..states import Event, Reason, State
from ..store import get_store
from ..store.values.claims import Claimed
from ..store.values.moves import Move
from .attempt import Attempt, AttemptLost, Fault, Loss, Member, NotPossible, Process, is_recorded

# Commits: the moments when daemons would see an enqueue, even if a test never commits.

# The methods of a Django connection that after_commit() replaces.
_METHODS = ("savepoint_commit", "savepoint_rollback")
# Stands for the savepoint of a block that has none: for such a block Django calls no method.
_NONE = "no savepoint"


def after_commit(alias: str, call: Callable[[], object]) -> None:
    """Call ``call()`` at the outermost commit, or at once if no transaction is open.

    The transactions of TestCase do not count: they are never committed. Inside them each
    ``atomic()`` of the tested code is a savepoint, and the end of the outermost one counts as
    the commit.
    """
    connection: Any = connections[alias]
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        call()
    elif not any(_is_of_test(block) for block in connection.atomic_blocks):
        if not any(function is call for _, function, _ in connection.run_on_commit):
            transaction.on_commit(call, using=alias)
    elif "savepoint_commit" not in vars(connection):
        connection.savepoint_commit = partial(_commit, connection, call)
        connection.savepoint_rollback = partial(_rollback, connection)
        # All blocks but the outermost of all have an entry.
        tested = [not _is_of_test(block) for block in connection.atomic_blocks].index(True) - 1
        if connection.savepoint_ids[tested] is None:
            connection.savepoint_ids[tested] = _NONE


def forget(alias: str) -> None:
    """Cancel the call that waits for the end of a savepoint."""
    connection: Any = connections[alias]
    for name in _METHODS:
        vars(connection).pop(name, None)
    ids = connection.savepoint_ids
    ids[:] = [None if sid == _NONE else sid for sid in ids]


def _commit(connection: Any, call: Callable[[], object], sid: str) -> None:
    """Release a savepoint, whose block the connection has left; call if it was the outermost."""
    if sid != _NONE:
        type(connection).savepoint_commit(connection, sid)
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)
        call()


def _rollback(connection: Any, sid: str) -> None:
    if sid == _NONE:
        connection.needs_rollback = True
        # Django releases it afterwards.
        connection.savepoint_commit = lambda _: forget(connection.alias)
        return
    type(connection).savepoint_rollback(connection, sid)
    if all(_is_of_test(block) for block in connection.atomic_blocks):
        forget(connection.alias)


def _is_of_test(block: Any) -> bool:
    return bool(block._from_testcase)


# Inline: enqueued Instances run at the commit, in the process of the test.


class Inline:
    """Calls ``drain()`` at each commit that may have made a Task due.

    The end of the block raises the first exception of ``drain()``. As in production, the code
    that enqueues does not see it. ``drain()`` is not called while another one runs, but after it.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        self._drain = drain
        self._is_draining = False
        self._is_open = False
        self._errors: list[BaseException] = []

    def __enter__(self) -> None:
        store: Any = get_store()
        names = ("enqueue", "record", "change", "open", "cancel")
        verbs = [(store, name) for name in names]
        verbs += [(store.graphs, "submit"), (store.schedules, "backfill")]
        # The attributes from before: those of an outer Inline, if there is one.
        self._before = [(owner, name, vars(owner).get(name)) for owner, name in verbs]
        for owner, name in verbs:
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

    def _watch(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def watched(*args: Any, **kwargs: Any) -> Any:
            answer = verb(*args, **kwargs)
            self.call()
            return answer

        return watched

    def call(self) -> None:
        """Drain at the commit; if a drain of somebody else is running, after that."""
        if self._is_draining or not self._is_open:
            return
        if drains.are_running:
            drains.call_after(self.call)
        else:
            after_commit(settings.DATABASE, self._run)

    def _run(self) -> None:
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


# Runs: the results of the attempts of a drain, as values.

# The number of rows in one query: SQLite limits the length of a list.
PORTION = 500


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of one attempt.

    ``state`` is the state of the Instance right after the attempt, and ``reason`` tells why it
    is FAILED. If it is FINISHED, ``response`` is the return value as a reader gets it, and
    ``files`` describes the published files. ``log`` has the messages of the attempt, one a
    line. ``error`` is the exception of the handler. ``instance`` is the row after the drain;
    None if its Type keeps nothing, or somebody has deleted it.
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


def runs_of(attempts: Iterable[tuple[Claimed, BaseException | None]]) -> list[Run]:
    """Return a Run for each attempt, in order; each is a claimed Task and the handler's error."""
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
        _run(
            claimed,
            error,
            instances.get(claimed.instance),
            responses.get(claimed.instance),
            records[claimed.key],
        )
        for claimed, error in attempts
    ]


def _run(
    claimed: Claimed,
    error: BaseException | None,
    instance: Instance | None,
    response: Response | None,
    records: Sequence[LogRecord],
) -> Run:
    said = [record.message for record in records if record.kind == models_Kind.MESSAGE]
    moved = [record for record in records if record.event]
    # A redrive that came later has the number of the attempt, too.
    moved = list(takewhile(lambda record: record.event != Event.REDRIVE, moved))
    # If the Instance is not kept, neither is the record of its end.
    state = moved[-1].state if moved else str(State.FINISHED)
    is_last = instance is not None and instance.attempt == claimed.attempt
    answers = response if is_last and state == State.FINISHED else None
    if state != State.FAILED or instance is None or not is_last:
        reason = ""
    else:
        reason = str(instance.reason)
    return Run(
        type=claimed.type,
        uuid=claimed.uuid,
        attempt=claimed.attempt,
        state=str(state),
        reason=reason,
        response=answers.value if answers else None,
        files=answers.files if answers else (),
        log="\n".join(said),
        error=error,
        instance=instance,
    )


# Draining: all due Tasks are claimed, run and recorded in the process of a test.

# Added to the delay of a retry: the database's clock has gone on since the record.
_SURELY = timedelta(seconds=1)
# The outcomes by which a handler speaks to ATP: they are no failures.
_WORDS = (Kind.RETRY, Kind.DEFER, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The arguments of a drain: see :meth:`..kit.Kit.drain`."""

    most: int = 1000
    raises: bool = True
    retries: bool = False
    twice: bool = False
    lose: Loss | Fault | None = None
    # Whether all that is due runs before an exception of a handler is raised.
    runs_all: bool = False


class Drain:
    """One drain: ``run()`` runs all due Tasks, ``work()`` runs one Instance."""

    def __init__(self, member: Member, wishes: Wishes) -> None:
        self._member, self._wishes = member, wishes
        self._process = Process()
        self._attempts: list[tuple[Claimed, BaseException | None]] = []
        # The Instances that have run: ``twice`` loses only their first attempt.
        self._lost: set[int] = set()
        self._steps: list[str] = []
        self._hits = 0
        self._errors: list[BaseException] = []

    @property
    def runs(self) -> list[Run]:
        """A Run for each attempt so far."""
        return runs_of(self._attempts)

    def run(self) -> list[Run]:
        """Run Tasks until none is due, and return a Run for each attempt, in order."""
        with self._process, self._member:
            self._run_due()
            if self._wishes.lose:
                self._member.lost = messages.lost_in_rehearsal()
        self._check_fault()
        if self._errors:
            raise self._errors[0]
        return self.runs

    def work(self, instance: int, attempt: int) -> Run:
        """Run one attempt of an Instance; those before this number are recorded, but not run."""
        with self._process, self._member:
            claimed = self._taken(instance)
            while claimed.attempt < attempt:
                self._member.start(claimed)
                why = messages.left_out_in_rehearsal()
                retry = Move(Event.RETRY, *claimed.key, message=why, delay=timedelta(0))
                self._member.record(retry)
                claimed = self._taken(instance)
            self._perform(claimed)
        return self.runs[-1]

    def _taken(self, instance: int) -> Claimed:
        claimed = self._member.take(instance)
        if claimed is None:
            raise NotPossible(f"Instance {instance} does not wait: it cannot be claimed.")
        return claimed

    def _run_due(self) -> None:
        while (claimed := self._member.claim()) is not None:
            if len(self._attempts) >= self._wishes.most:
                raise EndlessDrain(
                    f"{self._wishes.most} attempts were run, and more is due, of "
                    f"{claimed.type!r}: does a task enqueue itself? Else say most=."
                )
            self._perform(claimed)

    def _perform(self, claimed: Claimed) -> None:
        """Run an attempt and record its end, or lose it. Raises the exception of the handler."""
        wishes = self._wishes
        number = len(self._attempts)
        self._attempts.append((claimed, None))
        if wishes.lose == "before":
            return
        dies_once = wishes.twice and claimed.instance not in self._lost
        self._lost.add(claimed.instance)
        self._member.start(claimed)
        attempt = Attempt(
            claimed,
            self._member,
            self._process,
            meanwhile=self._run_due,
            fault=wishes.lose if isinstance(wishes.lose, Fault) else None,
            is_lost=dies_once or wishes.lose == "after",
        )
        outcome, is_hit = self._outcome(attempt)
        self._attempts[number] = claimed, None if is_hit else attempt.error
        error = self._recorded(claimed, attempt, outcome, is_lost=dies_once, is_hit=is_hit)
        if error is not None and wishes.raises:
            where = f"attempt {claimed.attempt} of {claimed.type}, inputs {claimed.data[:500]}"
            error.add_note(f"ATP: {where}")
            if not wishes.runs_all:
                raise error
            self._errors.append(error)

    def _outcome(self, attempt: Attempt) -> tuple[Outcome | None, bool]:
        """Return the outcome of an attempt, None if it is lost; and whether the fault lost it."""
        try:
            return attempt.run(), False
        except AttemptLost:
            self._hits += 1
            return None, True
        finally:
            self._steps += attempt.steps

    def _recorded(
        self,
        claimed: Claimed,
        attempt: Attempt,
        outcome: Outcome | None,
        *,
        is_lost: bool,
        is_hit: bool,
    ) -> BaseException | None:
        """Record the end of an attempt, and return the error to raise, if any."""
        if outcome is None or not is_recorded(outcome):
            self._member.note(attempt.notes)
        if is_lost:
            why = messages.lost_in_rehearsal()
            self._member.record(outcomes.lost(why, claimed))
        if is_lost or is_hit or self._wishes.lose == "after" or outcome is None:
            is_word = outcome is None or outcome.kind in _WORDS
            return None if is_word or is_hit else attempt.error
        if is_recorded(outcome):
            return None
        move = self._move(claimed, outcome)
        self._member.record(move)
        if move.event == Event.RETRY and self._wishes.retries and move.delay is not None:
            passed = move.delay + _SURELY
            self._member.store.let_pass(passed, instances=(claimed.instance,))
        return attempt.error if self._is_worth_raising(outcome, move) else None

    def _move(self, claimed: Claimed, outcome: Outcome) -> Move:
        """Return the move that records an end, which somebody may have asked for."""
        asked = self._member.asked(claimed) if outcome.kind in CUT_SHORT else None
        if asked is not None and asked.request == CANCEL:
            why = messages.cancelled(asked.who)
            return outcomes.cancelled(why, claimed, outcome)
        if asked is not None and outcome.kind is Kind.INTERRUPTED:
            why = messages.asked(asked.request)
            return Move(Event.RELEASE, *claimed.key, message=why)
        return outcomes.move(outcome, claimed)

    def _is_worth_raising(self, outcome: Outcome, move: Move) -> bool:
        """Whether an error is a failure, not an exception by which the handler speaks to ATP."""
        if move.event == Event.FAIL:
            return move.reason != Reason.CANCELLED
        return not (outcome.kind in _WORDS or (move.event == Event.RETRY and self._wishes.retries))

    def _check_fault(self) -> None:
        lose = self._wishes.lose
        if isinstance(lose, Fault) and not self._hits:
            came: Sequence[str] = list(dict.fromkeys(self._steps))
            raise AssertionError(
                f"No attempt came to the fault point {lose.point!r}. "
                f"Steps: {', '.join(came) or 'none'}."
            )


# One drain at a time: what a commit asks for while a drain runs comes after it.


class Drains:
    """The drains of this process that run now, one inside another; there is one object."""

    def __init__(self) -> None:
        self._depth = 0
        # The calls for the end of the outermost drain, in order, each once.
        self._after: dict[Callable[[], object], None] = {}

    @property
    def are_running(self) -> bool:
        """Whether a drain runs: it also runs what its handlers enqueue."""
        return self._depth > 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block as a drain; at the end of the outermost, make the calls that wait."""
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
        """Make a call at the end of the outermost drain, once, however often it is asked for."""
        self._after[call] = None


drains = Drains()


class EndlessDrain(ATPError):
    """More than ``most`` attempts were due: a task enqueues itself, or there are many tasks."""
