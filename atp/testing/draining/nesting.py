"""One drain at a time: what a commit asks for while a drain runs comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
