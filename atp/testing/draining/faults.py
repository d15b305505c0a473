"""Fault points: where a rehearsal loses an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ...daemon.worker.checkpoints import Checkpoints as OfWorker
from ...exceptions import InvalidOption

if TYPE_CHECKING:
    from ...authoring.context import Context
    from ...payload.codec import Payload
    from .isolation import Isolation

WHEN = ("before", "in", "after")
# At the ends of an attempt.
ENDS = ("before", "after")
Loss = Literal["before", "after"]


@dataclass(frozen=True)
class Fault:
    """A point of a handler with steps at which its attempt is lost.

    ``point`` is "before", "in" or "after" and the name of a step: "in charge" is when its
    function has been called and its result is not kept. Raises InvalidOption.
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
    """Raise InvalidOption if nothing can be lost so."""
    if lose is not None and lose not in ENDS and not isinstance(lose, Fault):
        raise InvalidOption(f"lose={lose!r}: must be None, 'before', 'after' or a Fault.")


class AttemptLost(BaseException):
    """Raised at a fault point, where a worker would be dead."""


class _NoPage:
    """Where a worker says that it is not to be stopped."""

    def write(self, slot: int, is_unstopped: bool) -> None:
        pass


class Checkpoints(OfWorker):
    """The checkpoints of one attempt, as a worker writes them, with a fault point or none."""

    def __init__(
        self, who: str, interruption: Any, isolation: Isolation, fault: Fault | None
    ) -> None:
        super().__init__(who, interruption, _NoPage(), 0)
        self._isolation, self._fault = isolation, fault
        self._transaction: str | None = None
        # The steps that it came to.
        self.seen: list[str] = []

    def is_in_transaction(self) -> bool:
        return self._isolation.is_inside()

    def find(self, context: Context, name: str) -> Any:
        self._come_to("before", name)
        return super().find(context, name)

    def begin(self, context: Context, name: str, delay: timedelta | None = None) -> Any:
        self._come_to("before", name)
        return super().begin(context, name, delay)

    def keep(
        self, context: Context, name: str, payload: Payload, took: timedelta | None = None
    ) -> None:
        self._come_to("in", name)
        super().keep(context, name, payload, took)
        if self._transaction != name:
            self._come_to("after", name)

    @contextmanager
    def transaction(self, context: Context, name: str) -> Iterator[None]:
        self._transaction = name
        with super().transaction(context, name):
            yield
        self._come_to("after", name)

    def _come_to(self, when: str, name: str) -> None:
        if name not in self.seen:
            self.seen.append(name)
        if self._fault is not None and (when, name) == (self._fault.when, self._fault.step):
            raise AttemptLost(f"lost at the fault point {self._fault.point!r}")
