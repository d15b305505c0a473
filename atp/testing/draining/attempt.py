"""One attempt in the process of a test: its handler is run as a worker runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from ... import signals
from ...authoring.context import Context
from ...authoring.steps import Asleep
from ...conf import settings
from ...daemon.shared.outcome import Kind, Outcome
from ...daemon.worker import execution
from ...daemon.worker.transactions import Transaction
from ...exceptions import PausedInTransaction
from ...store.values import CANCEL, RELEASE, Claimed, Message, Note
from ...verbs.registry import registry
from .faults import AttemptLost, Checkpoints, Fault
from .isolation import Isolation
from .member import Member
from .process import Process


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
