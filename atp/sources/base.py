"""Source, Reader, Record: what every source has; parameters they share."""

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
from ..store.values.steps import CursorMove, Note

# What every source has in common, and the record that it gives.

# A batch ends when its records, or the inputs that are made of them, have this size, in bytes.
BATCH_BYTES = 16 * 2**20
# The number of names that a note lists.
NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record of a source.

    ``shard`` and ``position`` tell where it was read. ``data`` is its content, ``key`` and
    ``headers`` are what the source sends beside it, ``time`` is the source's time of it.
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
        """Return the value of the content, which is JSON. Raises NotSerializable."""
        return tagged_json.parse(self.data)


class Gap(Fatal):
    """Records are missing between the position of a cursor and what the source still has.

    The tailer pauses its schedule: an operator sets the cursor, and resumes it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message} Set the cursor with manage.py atp tailer seek, or begin anew with "
            "manage.py atp tailer forget; then resume the schedule.",
            fingerprint="gap",
        )


class Reader(ABC):
    """Reads a source for one attempt, from the positions at which its cursors are."""

    def jumps(self) -> Sequence[CursorMove]:
        """Return the moves that no record makes: to where a shard is begun, and over a gap.

        They are committed before the records that were read behind them: what comes afterwards is
        not passed over. A move over a gap has a note of the kind "lost".
        """
        return ()

    def jumped(self) -> None:
        """Take notice that these moves are committed."""
        return

    @abstractmethod
    def read(self, limit: int) -> Sequence[Record]:
        """Return the next records, ``limit`` at most; none if the source has no more for now."""

    def take(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return those that may be settled, in the transaction in which they are."""
        return records

    def leave(self, record: Record) -> None:
        """Leave a record in the source that can neither be mapped nor be kept as inputs.

        Raises Fatal, if a source cannot pass it over.
        """
        raise Fatal(
            f"The record at {record} can neither be mapped nor be kept as inputs: it stays in the "
            "source, and those behind it.",
            fingerprint="cannot be kept",
        )

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        """Return the moves of the cursors behind these records."""
        return ()

    def settled(self, records: Sequence[Record]) -> None:
        """Take notice that these records are settled: that is committed."""
        return

    def behind(self) -> int | None:
        """Return the number of records that are left; None if the source does not tell."""
        return None

    def missing(self) -> tuple[Collection[str], Collection[str]] | None:
        """Return the known shards that are missing now, and those that are there.

        None if the source does not look for that.
        """
        return None

    def notes(self) -> Sequence[Note]:
        """Return what this look has found in the source and left there: see :class:`Note`.

        It is called at the end of an attempt. The notes replace those of the attempt before.
        """
        return ()


# The sources of the tailers that this process declares, by the identifiers of the tailers.
declared: dict[str, Source] = {}


class Source(ABC):
    """Where a tailer reads its records.

    If ``removes`` is true, settled records are removed from it.
    """

    removes = False

    @abstractmethod
    def __str__(self) -> str:
        """Return a description for people, without credentials."""

    def problems(self) -> Iterator[str]:
        """Yield what ``manage.py check`` should warn of, as sentences."""
        yield from ()

    @abstractmethod
    def open(self, positions: Mapping[str, str]) -> AbstractContextManager[Reader]:
        """Return a Reader that goes on from these positions of shards."""

    def check_position(self, position: str) -> None:
        """Check a position that an operator sets, before it is written.

        Raises ValueError, with what a position looks like.
        """
        return

    def pack(self, record: Record) -> dict[str, Any]:
        """Return a record as values that inputs can carry."""
        return {
            "shard": record.shard,
            "position": record.position,
            "data": record.data,
            "key": record.key,
            "headers": dict(record.headers),
            "time": record.time,
        }

    def unpack(self, packed: Mapping[str, Any]) -> Record:
        """Return the record that :meth:`pack` packed."""
        return Record(**packed)


# The parameters that sources have in common, and their check.

EARLIEST, LATEST = "earliest", "latest"
FAIL, SKIP = "fail", "skip"
_WORDS = {"start": (EARLIEST, LATEST), "on_gap": (FAIL, SKIP)}


class OddPosition(Fatal, ValueError):
    """A position that no source of this kind has."""


def check_words(source: str, **given: str) -> None:
    """Check the words of a source's parameters. Raises InvalidType."""
    for name, value in given.items():
        if value not in _WORDS[name]:
            raise InvalidType(
                f"{source}({name}={value!r}): must be {' or '.join(map(repr, _WORDS[name]))}."
            )


def check_name(source: str, name: str, value: object) -> None:
    """Check that a name is text. Raises InvalidType."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidType(f"{source}({name}={value!r}): must be printable text.")


def instant(seconds: float) -> datetime | None:
    """Return a time in seconds since 1970 as a datetime; None if it is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def missing(library: str, extra: str) -> Iterator[str]:
    """Yield a sentence if a library cannot be imported; ``extra`` is the extra that installs it."""
    if find_spec(library) is None:
        yield f"the package {library} is missing: it comes with the extra [{extra}]"
