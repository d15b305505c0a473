"""The kind of a text of several lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...words.kinds import Schema, Text
from ...words.options import check_lines


@dataclass(frozen=True)
class Lines(Text):
    """Printable text of any number of lines, and of up to ``most`` characters."""

    most: int

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "string", "maxLength": self.most}

    def from_json(self, value: Any) -> str:
        # A browser sends the ends of lines as CRLF.
        value = value.replace("\r\n", "\n") if isinstance(value, str) else value
        check_lines("It", value, self.most)
        return value
