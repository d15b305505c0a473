"""The stacks of attempts: which were asked for, and their records in the log."""

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ... import messages
from ...models import ASKED, Kind
from ...operations.registry import registry
from ...store.facts import Session
from ...store.values import Attempt, Message, ProgressUpdate
from .. import protocol
from ..processes import uptime
from ..protocol import Key
from ..stacks import Stack
from .pool import WorkerLink

if TYPE_CHECKING:
    from .attempts import Attempts
    from .core import Core

# If no record has answered the command for a stack by then, it is obeyed again, in seconds.
AGAIN = 10.0


class Stacks:
    """The stacks of a dispatcher's attempts, which the supervisor takes.

    ``taken`` are the stacks that were asked for and are not recorded yet, each with its worker, its
    attempt, and the time on the host's clock.
    """

    def __init__(self, core: "Core", attempts: "Attempts") -> None:
        self._core = core
        self._attempts = attempts
        # By attempt: the time on the uptime clock when the supervisor was asked.
        self._asked: dict[Key, float] = {}
        self.taken: list[tuple[WorkerLink, Key, float, Stack]] = []

    def asked(self, keys: Iterable[Key]) -> None:
        """Ask the supervisor for the stacks of these attempts; called again and again.

        ``keys`` are all attempts for whose stack somebody has asked.
        """
        now = uptime()
        self._asked = {key: self._asked.get(key, 0.0) for key in keys}
        for key, at in self._asked.items():
            link, attempt = self._core.pool.find(key)
            if link is None or attempt is not link.running or (at and now < at + AGAIN):
                continue
            self._asked[key] = now
            self._core.tell(protocol.TakeStack(link.slot, link.pid, key))

    def take(self) -> list[tuple[WorkerLink, Key, float, Stack]]:
        """Remove and return the stacks that are to be recorded."""
        taken, self.taken = self.taken, []
        return taken

    def record(
        self,
        link: WorkerLink,
        attempt: Attempt | None,
        stack: Stack,
        *,
        at: float | None = None,
        detail: str = ASKED,
        sessions: Iterable[Session] = (),
    ) -> None:
        """Add a Note with the stack of an attempt, unless the attempt has ended."""
        if attempt is None:
            return
        attempts = self._attempts
        if not attempt.start_known:
            attempts.start(attempt, link, attempt.started or uptime())
        lines = [messages.stack(stack.resident, stack.seconds, stack.busy)]
        lines += [messages.stack_unavailable(stack.problem)] if stack.problem else []
        lines += map(messages.session, sessions)
        message = Message(
            time=attempts.times.at(attempt, time.time() if at is None else at),
            level=logging.INFO,
            text="\n".join(lines) + (f"\n\n{stack.text}" if stack.text else ""),
            kind=Kind.STACK,
            detail=detail,
        )
        instance, number = attempt.key
        note = ProgressUpdate(
            instance=instance,
            attempt=number,
            who=attempts.who(link),
            messages=(message,),
            transactional=registry.is_transactional(attempt.type),
        )
        self._core.unrecorded.add(note)
