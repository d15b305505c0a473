"""An entry of the list of all that is put back after each attempt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """``parts`` return the values of now, and ``put_back(*values)`` makes them the values again.

    With ``keeps`` the entry may still differ afterwards, on purpose: what was added stays.
    ``told`` are audit events by which Python tells of a change before it makes one.
    """

    name: str
    # Called after each attempt: a function of C takes a fraction of the time of one of Python.
    parts: tuple[Callable[[], Any], ...]
    put_back: Callable[..., object]
    keeps: bool = False
    # Where the first value takes longer than those that are compared with it.
    first: Callable[[], Any] | None = None
    told: tuple[str, ...] = ()
    # What strikes nobody at once, and takes longer to take than the rest.
    is_slow: bool = False

    @property
    def can_wait(self) -> bool:
        """Whether it is compared only where something else has changed, or now and then."""
        return self.is_slow or bool(self.told)

    def take(self) -> list[Any]:
        """Return the values of now."""
        return [part() for part in self.parts]
