"""The kind of a parameter that takes a past point in time."""

from datetime import datetime, timedelta
from typing import Any

from ...words.kinds import Moment, Schema


class Past(Moment):
    """A point in time as a datetime; it refuses a delay from now, which lies in the future."""

    schema: Schema = {"type": "string", "format": "date-time"}
    hint = "as 2030-01-31T18:00"

    def from_text(self, text: str) -> datetime:
        time = super().from_text(text)
        if isinstance(time, timedelta):
            raise ValueError(f"{text!r} is a delay from now, and not a time that has passed.")
        return time

    def from_json(self, value: Any) -> datetime:
        time = super().from_json(value) if isinstance(value, str) else None
        if not isinstance(time, datetime):
            raise ValueError(f"{value!r} is no time with an offset, as 2030-01-31T18:00:00Z.")
        return time
