"""What an attempt keeps while it runs: checkpoints of steps, positions of tailers."""

from dataclasses import dataclass
from typing import Any

from ...payload import codec


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A step as an attempt finds it; ``payload`` is the result of a step that is done.

    ``left`` is the rest of a sleep, in seconds; at 0 the sleep is done.
    """

    is_done: bool
    payload: codec.Payload | None = None
    left: float = 0.0

    @property
    def value(self) -> Any:
        """The result of the step. Raises CorruptData."""
        return None if self.payload is None else codec.decode(self.payload)


@dataclass(frozen=True, kw_only=True, slots=True)
class CursorMove:
    """The move of a cursor, from one position to another; ``before`` is None for a new cursor."""

    shard: str
    before: str | None
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The number of records that a tailer has settled, of Instances, and of rejected records.

    ``rejected_in_a_row`` is the new number of those rejected since one was mapped, None if it
    stays.
    """

    records: int
    enqueued: int = 0
    rejected: int = 0
    rejected_in_a_row: int | None = None
