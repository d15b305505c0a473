"""The verbs on tailers."""

from typing import Any

from ...models import Tailer
from ...rows.tailers.cursor import MAX_SHARD
from ...words.kinds import Kind
from ...words.options import check_lines
from ..control import tailers
from ..control.tailers import MAX_POSITION
from .verb import CONTROL, Parameter, Verb


class _Line(Kind):
    """One printable line of text, of up to ``most`` characters."""

    most: int

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        if not isinstance(value, str) or len(value.splitlines()) > 1:
            raise ValueError(f"It must be one line of text, not {value!r}.")
        check_lines("It", value, self.most)
        return value


class Shard(_Line):
    """The name of a shard."""

    most = MAX_SHARD
    schema = {"type": "string", "maxLength": MAX_SHARD}


class Position(_Line):
    """A position in a source."""

    most = MAX_POSITION
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_POSITION}

    def from_json(self, value: Any) -> str:
        found = super().from_json(value)
        if not found:
            raise ValueError("It must not be empty.")
        return found


_SHARD = Parameter(
    name="shard",
    kind=Shard(),
    help="The shard, as the list of cursors names it: a file, a partition.",
    is_required=True,
)


def _seek(row: Tailer, *, by: str, **given: Any) -> Tailer:
    return tailers.seek(row.identifier, by=by, **given)


def _forget(row: Tailer, *, by: str, **given: Any) -> Tailer:
    return tailers.forget_cursor(row.identifier, by=by, **given)


VERBS = (
    Verb(
        name="seek",
        label="Seek",
        phrase="Have {} go on elsewhere",
        explanation="Have a tailer go on from another position of a shard.",
        call=_seek,
        told=lambda _, row: "The cursor is set.",
        parameters=(
            _SHARD,
            Parameter(
                name="position",
                kind=Position(),
                help="As the list of cursors shows it; a number that follows may be left out.",
                is_required=True,
            ),
        ),
        permission=CONTROL,
    ),
    Verb(
        name="forget",
        label="Read again",
        phrase="Have {} read a shard again",
        explanation="Forget how far a shard has been read: the source decides where it begins.",
        call=_forget,
        told=lambda _, row: "The cursor is forgotten.",
        parameters=(_SHARD,),
        permission=CONTROL,
    ),
)
