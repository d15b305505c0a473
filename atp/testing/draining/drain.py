"""Draining: all due Tasks are claimed, run and recorded in the process of a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ...daemon.shared import outcome as outcomes
from ...daemon.shared.outcome import CUT_SHORT, Kind, Outcome
from ...states import Event, Reason
from ...store.values import CANCEL, Claimed, Move
from ...words import attempt_messages, log_messages
from ..errors import EndlessDrain, NotPossible
from .attempt import Attempt, is_recorded
from .faults import AttemptLost, Fault, Loss
from .member import Member
from .process import Process
from .runs import Run, runs_of

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
                self._member.lost = log_messages.lost_in_rehearsal()
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
                why = log_messages.left_out_in_rehearsal()
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
            why = log_messages.lost_in_rehearsal()
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
            why = attempt_messages.cancelled(asked.who)
            return outcomes.cancelled(why, claimed, outcome)
        if asked is not None and outcome.kind is Kind.INTERRUPTED:
            why = attempt_messages.asked(asked.request)
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
