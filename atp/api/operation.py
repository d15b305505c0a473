"""What can be done at an address, as data: the checks of requests and the schema derive from it."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..conf import did_you_mean
from ..registry import IDENTIFIER

_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter in the query or the path; ``schema`` says what it may be, as OpenAPI does."""

    name: str
    description: str
    schema: Mapping

    def read(self, text):
        """Return the value that the text stands for. Raises ValueError with a sentence."""
        if not text:
            raise ValueError(f"{self.name!r} has no value.")
        return _READERS[self.schema["type"]](self.schema, text)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an operation answers with: a serializer class, or none for a raw body.

    ``headers`` are those that it has beside the usual, with what they say.
    """

    description: str
    serializer: type | None = None
    is_array: bool = False
    headers: Mapping = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A method at an address. ``problems`` are statuses of the answers that tell of a problem.

    ``takes_many`` says that the body may be an array of what ``body`` describes.
    """

    id: str
    summary: str
    description: str = ""
    permissions: tuple = ()
    parameters: tuple = ()
    body: type | None = None
    takes_many: bool = False
    answers: Mapping
    problems: tuple = ()
    is_open: bool = False

    def read(self, query):
        """Return the values of a query, and what is wrong with it: pairs of a name and a text."""
        known = {parameter.name: parameter for parameter in self.parameters}
        values, errors = {}, []
        for name in query:
            if name not in known:
                hint = did_you_mean(name, known)
                errors.append((name, f"There is no parameter {name!r} here.{hint}"))
            elif len(query.getlist(name)) > 1:
                errors.append((name, f"{name!r} is given more than once."))
            else:
                try:
                    values[name] = known[name].read(query[name])
                except ValueError as error:
                    errors.append((name, str(error)))
        return values, errors


def _text(schema, text):
    if len(text) > schema.get("maxLength", math.inf):
        raise ValueError(f"It has {len(text)} characters, {schema['maxLength']} are possible.")
    return text


def _number(schema, text):
    pattern, read, kind = (
        (_WHOLE, int, "whole number") if schema["type"] == "integer" else (_NUMBER, float, "number")
    )
    least, most = schema["minimum"], schema["maximum"]
    value = read(text) if pattern.fullmatch(text) else math.nan
    if not least <= value <= most:
        raise ValueError(f"{text!r} is not a {kind} from {least} to {most}.")
    return value


_READERS = {"string": _text, "integer": _number, "number": _number}

DEFAULT_LIMIT, LARGEST_LIMIT = 50, 500
LONGEST_WAIT = 60

UUID = Parameter(
    name="uuid", description="The Instance's uuid.", schema={"type": "string", "format": "uuid"}
)
DAEMON_UUID = Parameter(
    name="uuid", description="The daemon's uuid.", schema={"type": "string", "format": "uuid"}
)
TYPE_IDENTIFIER = Parameter(
    name="identifier",
    description="The Type's identifier.",
    schema={"type": "string", "pattern": f"^{IDENTIFIER}$"},
)
FILE_NUMBER = Parameter(
    name="number",
    description="The place of the file among those published, from 0.",
    schema={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
)
PAGE = Parameter(
    name="page",
    description="Where the page begins, as `next` or `previous` of another page says.",
    schema={"type": "string", "minLength": 1, "maxLength": 1000, "pattern": "^[A-Za-z0-9_-]+$"},
)
LIMIT = Parameter(
    name="limit",
    description="Rows on a page.",
    schema={
        "type": "integer",
        "minimum": 1,
        "maximum": LARGEST_LIMIT,
        "default": DEFAULT_LIMIT,
    },
)
WAIT = Parameter(
    name="wait",
    description="Answer when the Instance has ended, or after so many seconds.",
    schema={"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0},
)
