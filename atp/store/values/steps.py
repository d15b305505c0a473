"""What an attempt keeps while it runs: checkpoints of steps, positions of tailers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

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


# The longest message of a note, in characters.
MAX_NOTE = 2000

NoteKind: TypeAlias = Literal["lost", "skipped", "waiting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What an operator should know about a source: how many records of it make no Instance.

    ``kind`` is one of:

    - "lost": the source has removed these records, and nobody has read them.
    - "skipped": these records, files or folders are in the source, and the tailer cannot read
      them. Somebody has to act: to rename them, to move them, to change their permissions.
    - "waiting": these records are left for a later look. Nobody has to act.

    ``count`` is their number, None if it is unknown. ``message`` is a sentence for people, without
    a period at its end, that has the number and some of the names.

    A note counts in one of two ways. A note of :meth:`Reader.notes` describes the source as this
    look has found it: its count replaces that of the look before, and the same note again is no
    news. A note in :attr:`CursorMove.notes` is an event, which happens once: its count is added in
    the transaction that moves the cursor. So "lost" belongs to a move. "skipped" belongs to a move
    if the cursor passes the record over, as in a stream, and to a look if a later look finds it
    again, as in a directory.
    """

    kind: NoteKind
    count: int | None
    message: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(NoteKind):
            raise ValueError(f"Note(kind={self.kind!r}): must be one of {get_args(NoteKind)}.")
        if self.count is not None and self.count < 0:
            raise ValueError(f"Note(count={self.count!r}): must be 0 or more, or None.")
        # Names in a source may be what no column of a database can hold.
        text = self.message.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        text = " ".join(text.encode("utf-8", "replace").decode().split())
        object.__setattr__(self, "message", text[:MAX_NOTE])


@dataclass(frozen=True, kw_only=True, slots=True)
class CursorMove:
    """The move of a cursor, from one position to another; ``before`` is None for a new cursor.

    ``notes`` tell which records it passes over: they are counted if it is committed.
    """

    shard: str
    before: str | None
    after: str
    notes: Sequence[Note] = ()


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
