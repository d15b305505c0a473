"""The checkpoint of a handler's step."""

from dataclasses import dataclass
from typing import Any

from ...payload import codec


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A step as an attempt finds it. ``payload`` is the result of one that is done.

    ``left`` is the rest of a sleep, in seconds; with 0 it is done.
    """

    is_done: bool
    payload: codec.Payload | None = None
    left: float = 0.0

    @property
    def value(self) -> Any:
        """The result as the function returned it. Raises CorruptData."""
        return None if self.payload is None else codec.decode(self.payload)
