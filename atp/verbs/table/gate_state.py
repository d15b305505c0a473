"""The kind of a parameter that states the expected state of a gate."""

from datetime import datetime
from typing import Any

from ...words.kinds import DATE_TIME, Choice, Kind, time_from_json


class GateState(Kind):
    """The state of a gate: a word, or the time since when the gate has been in its state."""

    _words = Choice(("hold", "drop", "open"))
    schema = {"oneOf": [{"enum": list(_words.words)}, DATE_TIME]}
    hint = "hold, drop or open, or the time at which the gate was last set"

    def from_text(self, text: str) -> datetime | str:
        return self.from_json(text)

    def from_json(self, value: Any) -> datetime | str:
        if value in self._words.words:
            return value
        try:
            return time_from_json(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{value!r} is neither hold, drop nor open, nor a time with an offset, at which "
                "the gate was last set."
            ) from None
