"""The outcome of a delivery of moves or notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


class Refused(list):
    """The entries that were refused.

    ``known`` describes the others, which had been written before: pairs of (Instance, attempt,
    event) and the key of the LogRecord.
    """

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        super().__init__(entries)
        self.known: list[tuple[tuple[int, int | None, str], int]] = []


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """The outcome of a delivery: the refused entries, and the keys of locked Instances.

    ``waited`` tells whether a statement waited in vain for a lock of another session.
    """

    refused: Sequence[Any] = field(default_factory=list)
    locked: frozenset[int] = frozenset()
    waited: bool = False
