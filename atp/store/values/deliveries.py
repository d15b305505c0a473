"""The outcome of a delivery of moves or notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


class Refused(list):
    """The entries that were refused.

    ``known`` are pairs of those that are not, as they had been written before: Instance, attempt
    and event, and the key of the LogRecord.
    """

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        super().__init__(entries)
        self.known: list[tuple[tuple[int, int | None, str], int]] = []


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """The outcome of a delivery: the entries refused, and the keys of Instances that are locked.

    ``waited`` tells whether a statement waited in vain for a lock of somebody else.
    """

    refused: Sequence[Any] = field(default_factory=list)
    locked: frozenset[int] = frozenset()
    waited: bool = False
