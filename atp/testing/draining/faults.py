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
