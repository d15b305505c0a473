"""A stream of Redis, or of Valkey: its entries are records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from ..store.values.steps import CursorMove, Note
from .base import (
    BATCH_BYTES,
    EARLIEST,
    FAIL,
    LATEST,
    Gap,
    OddPosition,
    Reader,
    Record,
    Source,
    check_name,
    check_words,
    instant,
    missing,
)

# How long the server may take to answer, in seconds.
TIMEOUT = 10.0
# The number of entries that are asked for at once: their size is known afterwards.
PORTION = 32
FIRST = "0-0"
# An id, and the number of entries up to it.
_POSITION = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?( [0-9]{1,19})?")
MAX_NUMBER = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class StreamRecord(Record):
    """An entry of a stream. ``fields`` has its fields by name; ``data`` is the field "data"."""

    fields: Mapping[str, bytes]


class RedisStream(Source):
    """The entries of a stream of Redis 7 or Valkey, read by their ids, without a consumer group.

    ``url`` is the address of the server. A tailer that has not read yet begins at ``start``:
    "earliest" or "latest". With ``trim`` the entries that are settled are removed from the stream,
    but the last of them; so nobody else may read it. ``on_gap`` decides what happens if entries
    were removed that had not been read: "fail" raises Gap, "skip" goes on with what is there.
    Raises InvalidType.
    """

    def __init__(
        self,
        key: str,
        *,
        url: str = "redis://127.0.0.1:6379/0",
        start: str = EARLIEST,
        trim: bool = False,
        on_gap: str = FAIL,
    ) -> None:
        check_name("RedisStream", "key", key)
        check_name("RedisStream", "url", url)
        check_words("RedisStream", start=start, on_gap=on_gap)
        self.key, self._url = key, url
        self.start, self.trim, self.on_gap = start, trim, on_gap
        self.removes = trim

    def __str__(self) -> str:
        parts = urlsplit(self._url)
        server = f"{parts.hostname or ''}:{parts.port or 6379}{parts.path}"
        return f"{parts.scheme}://{server} {self.key}"

    def problems(self) -> Iterator[str]:
        yield from missing("redis", "redis")

    def check_position(self, position: str) -> None:
        _parsed(position)

    @contextmanager
    def open(self, positions: Mapping[str, str]) -> Iterator[Reader]:
        from redis import Redis

        client = Redis.from_url(
            self._url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, protocol=2
        )
        with client:
            yield _Reader(self, client, positions.get(self.key))

    def pack(self, record: Record) -> dict[str, Any]:
        fields: Mapping[str, bytes] = record.fields  # type: ignore[attr-defined]
        return {
            "shard": record.shard,
            "position": record.position,
            "time": record.time,
            "fields": [list(pair) for pair in fields.items()],
        }

    def unpack(self, packed: Mapping[str, Any]) -> StreamRecord:
        fields = dict(packed["fields"])
        given = {name: packed[name] for name in ("shard", "position", "time")}
        return StreamRecord(fields=fields, data=fields.get("data", b""), **given)


class _Reader(Reader):
    """A position is the id of an entry, and the number of entries ever added up to it.

    The server numbers the entries that it has added, and tells how many it still has. So the number
    of those that were removed unread is exact, unless the stream was made anew, or an operator has
    set a position without a number.
    """

    def __init__(self, source: RedisStream, client: Any, position: str | None) -> None:
        self._source, self._client = source, client
        self._begin = position
        self._last = FIRST
        self._count: int | None = None
        # The position to which the cursor is set without a record.
        self._jump: str | None = None
        # What the cursor passes over when it moves to a position.
        self._lost: dict[str, list[Note]] = {}
        if position is not None:
            self._last, self._count = _parsed(position)
            return
        # The cursor is set before there is a record: what is removed from now on is counted.
        state, _ = self._look(0)
        self._count = state.added - state.length
        if source.start == LATEST:
            self._last, self._count = state.last, state.added
        self._jump = self._position()

    def jumps(self) -> Sequence[CursorMove]:
        if self._jump is None:
            return ()
        return [self._move(self._jump)]

    def jumped(self) -> None:
        self._lost.pop(self._jump or "", None)
        self._begin, self._jump = self._jump, None

    def read(self, limit: int) -> Sequence[Record]:
        """Read up to ``limit`` entries, or BATCH_BYTES; what is behind a gap is read by itself."""
        records: list[StreamRecord] = []
        size = 0
        while len(records) < limit and size < BATCH_BYTES:
            portion = min(limit - len(records), PORTION)
            state, entries = self._look(portion)
            if records and not state.has_last:
                break  # there may be a gap: the records before it are settled first
            if not records and self._has_gap(state):
                state, entries = self._look(portion)
            for id, fields in entries:
                records.append(self._record(id.decode(), fields))
                size += sum(map(len, fields.values()))
            if len(entries) < portion:
                self._at_end(state, records)
                break
        return records

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        notes = [note for record in records for note in self._lost.get(record.position, ())]
        return [self._move(records[-1].position, notes)]

    def settled(self, records: Sequence[Record]) -> None:
        self._begin = records[-1].position
        for record in records:
            self._lost.pop(record.position, None)
        if self._source.trim:
            last, _ = _parsed(self._begin)
            self._client.xtrim(self._source.key, minid=last, approximate=False)

    def behind(self) -> int:
        state, _ = self._look(0)
        last, count = (FIRST, None) if self._begin is None else _parsed(self._begin)
        if last == state.last:
            return 0
        return min(state.length, max(0, state.added - (count or 0)))

    def _move(self, after: str, notes: Sequence[Note] | None = None) -> CursorMove:
        notes = tuple(self._lost.get(after, ()) if notes is None else notes)
        return CursorMove(shard=self._source.key, before=self._begin, after=after, notes=notes)

    def _position(self) -> str:
        return self._last if self._count is None else f"{self._last} {self._count}"

    def _record(self, id: str, fields: Mapping[bytes, bytes]) -> StreamRecord:
        """Return the record of an entry, which is now the last one that was read."""
        self._last = id
        if self._count is not None:
            self._count += 1
        named = {name.decode(errors="backslashreplace"): value for name, value in fields.items()}
        milliseconds = int(id.partition("-")[0])
        return StreamRecord(
            shard=self._source.key,
            position=self._position(),
            data=named.get("data", b""),
            time=instant(milliseconds / 1000),
            fields=named,
        )

    def _has_gap(self, state: _State) -> bool:
        """Whether entries are missing behind the last one that was read. Raises Gap.

        If they are to be passed over, the next look goes on behind them.
        """
        if not state.added or self._last == state.last:
            return False
        if self._last == FIRST and self._count is None:
            return False  # an operator has set it to the beginning
        if _order(self._last) > _order(state.last):
            told = f"the stream ends at {state.last}, before {self._last}, which was read"
            self._pass_over(None, told, state.last, state.added)
            return True
        removed = state.added - state.length
        if state.has_last or not state.is_trimmed_to(self._last):
            return False  # what was deleted singly is counted at the end
        if self._count is None:
            if not removed:
                return False
            told = f"entries behind {self._last} may be missing, {removed} at most"
            self._pass_over(None, told, self._last, removed)
            return True
        lost = removed - self._count
        if lost > 0:
            told = f"{lost} entries behind {self._last} were removed unread"
            self._pass_over(lost, told, self._last, removed)
        elif lost < 0:
            told = f"the stream was made anew behind {self._last}: what was lost is unknown"
            self._add_jump(Note(kind="lost", count=None, message=told), self._last, removed)
        return lost != 0

    def _at_end(self, state: _State, records: list[StreamRecord]) -> None:
        """Everything that was ever added is read: count what somebody has deleted singly."""
        if not state.added:
            return
        lost = 0 if self._count is None else state.added - self._count
        self._count = state.added
        if lost <= 0:
            return
        told = f"{lost} entries were deleted before they were read"
        note = Note(kind="lost", count=lost, message=told)
        if not records:
            self._add_jump(note, state.last, state.added)
            return
        records[-1] = replace(records[-1], position=self._position())
        self._lost[records[-1].position] = [note]

    def _pass_over(self, lost: int | None, told: str, last: str, count: int) -> None:
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {told}.")
        self._add_jump(Note(kind="lost", count=lost, message=told), last, count)

    def _add_jump(self, note: Note, last: str, count: int) -> None:
        self._last, self._count = last, count
        notes = [*self._lost.pop(self._jump or "", ()), note]
        self._jump = self._position()
        self._lost[self._jump] = notes

    def _look(self, limit: int) -> tuple[_State, Sequence[tuple[bytes, dict[bytes, bytes]]]]:
        """Return the state of the stream, and at the same moment the entries that are next."""
        from redis import ResponseError

        key = self._source.key
        with self._client.pipeline(transaction=True) as together:
            together.xinfo_stream(key)
            together.xrange(key, self._last, self._last)
            if limit:
                together.xread({key: self._last}, count=limit)
            found, last, *read = together.execute(raise_on_error=False)
        if isinstance(found, ResponseError) and "no such key" in str(found):
            return _State(0, 0, "", FIRST, False), ()
        for answer in (found, last, *read):
            if isinstance(answer, Exception):
                raise answer
        state = _State(
            found["entries-added"],
            found["length"],
            _first(found),
            found["last-generated-id"].decode(),
            bool(last),
        )
        return state, (read[0][0][1] if read and read[0] else ())


@dataclass(frozen=True)
class _State:
    """A stream: the number of entries ever added and still there, the first id and the last one.

    ``first`` is that of the first entry that is there, empty if there is none. ``last`` is the last
    id ever given. ``has_last`` tells whether the entry that was read last is still there.
    """

    added: int
    length: int
    first: str
    last: str
    has_last: bool

    def is_trimmed_to(self, id: str) -> bool:
        """Whether no entry up to this id is there."""
        return not self.first or _order(self.first) > _order(id)


def _first(found: Mapping[str, Any]) -> str:
    entry = found["first-entry"]
    return entry[0].decode() if entry else ""


def _parsed(position: str) -> tuple[str, int | None]:
    """Return the id in a position, and the number of entries up to it. Raises OddPosition."""
    last, _, count = position.partition(" ")
    if not _POSITION.fullmatch(position) or max(_order(last)) > MAX_NUMBER:
        raise OddPosition(f"{position!r} is no position of a stream, as 1700000000000-0.")
    return last, int(count) if count else None


def _order(id: str) -> tuple[int, int]:
    time, _, number = id.partition("-")
    return int(time), int(number or 0)
