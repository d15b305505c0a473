"""The notes of a running attempt: progress, messages, files."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...models import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message in an Instance's log, which is no transition.

    Its ``kind`` is MESSAGE, or STACK: then the record answers the command for the stack.
    """

    time: datetime
    level: int
    text: str
    kind: Kind = Kind.MESSAGE
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Progress, messages and files that a running attempt reports between its transitions.

    ``left_out`` is the number of its messages that are not kept, between the first and the last
    ones (:func:`.messages.kept`). ``again`` says that the note may have been written before,
    since its acknowledgement got lost. ``transactional`` is as in :class:`Move`.
    """

    instance: int
    attempt: int
    who: str = ""
    progress: float | None = None
    progress_message: str | None = None
    messages: tuple[Message, ...] = ()
    files: tuple[dict[str, Any], ...] = ()
    left_out: int = 0
    again: bool = False
    transactional: bool = False
