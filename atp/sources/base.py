"""The interfaces Source, Reader and Record, and the checks of parameters that sources share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from ..exceptions import Fatal, InvalidType
from ..payload import json as tagged_json
from ..store.values import CursorMove, Note

# A batch ends when its records, or the inputs made from them, reach this size, in bytes.
BATCH_BYTES = 16 * 2**20
# The maximum number of names that a note lists.
NAMED = 5
# The words that parameters of sources take.
EARLIEST, LATEST = "earliest", "latest"
FAIL, SKIP = "fail", "skip"
_CHOICES = {"start": (EARLIEST, LATEST), "on_gap": (FAIL, SKIP)}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record from a source.

    ``shard`` and ``position`` say where the record was read. ``data`` is its content. ``key``,
    ``headers`` and ``time`` are set if the source has such values for its records.
    """

    shard: str = ""
    position: str = ""
    data: bytes = b""
    key: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    time: datetime | None = None

    def __str__(self) -> str:
        return f"{self.shard}:{self.position}" if self.shard else self.position

    def text(self) -> str:
        """Return the content as text. Raises UnicodeDecodeError."""
        return self.data.decode()

    def json(self) -> Any:
        """Return the content, parsed as JSON. Raises NotSerializable."""
        return tagged_json.parse_json(self.data)


class Gap(Fatal):
    """Records are missing between a cursor and the first record that the source still has.

    The tailer pauses its schedule until an operator sets the cursor and resumes the schedule.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message} Set the cursor with manage.py atp tailer seek, or begin anew with "
            "manage.py atp tailer forget; then resume the schedule.",
            fingerprint="gap",
        )


class Reader(ABC):
    """Reads a source for one attempt, starting at the positions of its cursors."""

    def jumps(self) -> Sequence[CursorMove]:
        """Return the cursor moves that belong to no record: to the start of a shard, or over a gap.

        ATP commits them before the records that were read after them, so that no later record is
        skipped. A move over a gap has a note of the kind "lost".
        """
        return ()

    def jumped(self) -> None:
        """ATP calls this after it has committed the moves that :meth:`jumps` returned."""
        return

    @abstractmethod
    def read(self, limit: int) -> Sequence[Record]:
        """Return up to ``limit`` further records; an empty sequence if there are none for now."""

    def take(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records that may be committed now.

        ATP calls this in the transaction that commits their position.
        """
        return records

    def leave(self, record: Record) -> None:
        """Leave a record in the source because it can neither be mapped nor be stored as inputs.

        Raises Fatal if the source cannot skip the record.
        """
        raise Fatal(
            f"The record at {record} can neither be mapped nor be stored as inputs. It stays in "
            "the source, and so do the records after it.",
            fingerprint="cannot be kept",
        )

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        """Return the cursor moves to commit with these records, to the positions after them."""
        return ()

    def settled(self, records: Sequence[Record]) -> None:
        """ATP calls this after it has committed the position after these records."""
        return

    def behind(self) -> int | None:
        """Return the number of records still to be read; None if the source cannot count them."""
        return None

    def missing(self) -> tuple[Collection[str], Collection[str]] | None:
        """Compare the shards that have cursors with the source.

        Return two collections: the shards that the source no longer has, and those that it still
        has. Return None if the source does not compare them.
        """
        return None

    def notes(self) -> Sequence[Note]:
        """Return notes about what this attempt left in the source, and why; see :class:`Note`.

        ATP calls this at the end of an attempt. The notes replace those of the attempt before.
        """
        return ()


class Source(ABC):
    """The interface of sources, from which tailers read records.

    If ``removes`` is true, the source removes records when their position is committed.
    """

    removes = False

    @abstractmethod
    def __str__(self) -> str:
        """Return a description for people, without credentials."""

    def problems(self) -> Iterator[str]:
        """Yield the problems that ``manage.py check`` reports as warnings, as sentences."""
        yield from ()

    @abstractmethod
    def open(self, positions: Mapping[str, str]) -> AbstractContextManager[Reader]:
        """Return a Reader that continues from these positions, given by shard."""

    def check_position(self, position: str) -> None:
        """Check a position that an operator sets, before it is written.

        Raises ValueError; its message shows what a position looks like.
        """
        return

    def pack(self, record: Record) -> dict[str, Any]:
        """Return a record as a dictionary that inputs can hold."""
        return {
            "shard": record.shard,
            "position": record.position,
            "data": record.data,
            "key": record.key,
            "headers": dict(record.headers),
            "time": record.time,
        }

    def unpack(self, packed: Mapping[str, Any]) -> Record:
        """Return the record from which :meth:`pack` made this dictionary."""
        return Record(**packed)


# The sources of the tailers that this process declares, by the identifiers of the tailers.
declared: dict[str, Source] = {}


# What the sources share: checks of their parameters and positions.


class InvalidPosition(Fatal, ValueError):
    """A position is invalid in a source of this kind."""


def check_words(source: str, **words: str) -> None:
    """Check parameters of a source that accept only certain words. Raises InvalidType."""
    for name, value in words.items():
        if value not in _CHOICES[name]:
            raise InvalidType(
                f"{source}({name}={value!r}): must be {' or '.join(map(repr, _CHOICES[name]))}."
            )


def check_name(source: str, name: str, value: object) -> None:
    """Check that a parameter of a source is printable text. Raises InvalidType."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidType(f"{source}({name}={value!r}): must be printable text.")


def to_datetime(seconds: float) -> datetime | None:
    """Return a time in seconds since 1970 as a datetime; None if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def library_problems(library: str, extra: str) -> Iterator[str]:
    """Yield a sentence if a library is not installed.

    ``extra`` is the name of ATP's extra, such as "kafka", that installs the library.
    """
    if find_spec(library) is None:
        yield f"the package {library} is missing: it comes with the extra [{extra}]"
