"""The kinds of parameters that take the inputs of a handler."""

import json
from collections.abc import Mapping
from typing import Any

from ...exceptions import NotSerializable
from ...payload import binding, tagged_json
from ...words.kinds import Kind
from ...words.wording import shorten


class Inputs(Kind):
    """Keyword arguments of a handler: a JSON object, with tags for types that JSON lacks."""

    schema = {"type": "object", "additionalProperties": {}}
    hint = 'a JSON object, as {"region": "alps"}'

    def from_text(self, text: str) -> dict[str, Any]:
        try:
            value = tagged_json.parse(text)
        except NotSerializable as error:
            raise ValueError(f"This is {error}.") from None
        return self.from_json(value)

    def from_json(self, value: object) -> dict[str, Any]:
        # A tag may stand for the whole: {"$float": "nan"} is an object, and is a number.
        found = tagged_json.from_plain(value)
        if not isinstance(found, dict):
            raise ValueError(f"{shorten(repr(value), 200)} is not a JSON object of arguments.")
        for name in found:
            if not isinstance(name, str):
                raise ValueError(f"An argument is called {name!r}; names are text.")
        return found

    @staticmethod
    def text_of(value: Mapping[str, Any]) -> str:
        """Return a value as text that :meth:`from_text` reads."""
        return json.dumps(json.loads(tagged_json.to_json(value)), ensure_ascii=False)


class Arguments(Kind):
    """Arguments of a handler: a JSON object as in :class:`Inputs`, or a JSON array by position."""

    schema = {"oneOf": [Inputs.schema, {"type": "array", "items": {}}]}

    def from_json(self, value: Any) -> binding.Arguments:
        return binding.arguments(tagged_json.from_plain(value))
