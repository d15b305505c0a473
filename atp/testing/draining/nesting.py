"""One drain at a time: what a commit asks for while a drain runs comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_running = 0
# The calls for the end of the outermost drain, in order, each once.
_after: dict[Callable[[], object], None] = {}


def is_running() -> bool:
    """Whether a drain runs: it also runs what its handlers enqueue."""
    return _running > 0


@contextmanager
def running() -> Iterator[None]:
    """Count the block as a drain; at the end of the outermost one, make the calls that wait."""
    global _running
    _running += 1
    try:
        yield
    finally:
        _running -= 1
        if not _running:
            calls = list(_after)
            _after.clear()
            for call in calls:
                call()


def call_after(call: Callable[[], object]) -> None:
    """Make a call at the end of the outermost drain, once, however often it is asked for."""
    _after[call] = None
