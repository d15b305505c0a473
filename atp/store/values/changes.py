"""The changes that an operator makes to a waiting Task."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """New values for a waiting Task; None leaves a value as it is.

    ``due`` is a time, or a delay from now. ``postpone`` is a delay from the old due time, or from
    now if that has passed.
    """

    priority: int | None = None
    collection: str | None = None
    due: datetime | timedelta | None = None
    postpone: timedelta | None = None

    def due_at(self, was: datetime, now: datetime) -> datetime:
        """Return the new due time of a Task that was due at ``was``. Raises OverflowError."""
        if self.postpone is not None:
            return max(was, now) + self.postpone
        if isinstance(self.due, timedelta):
            return now + self.due
        return was if self.due is None else self.due
