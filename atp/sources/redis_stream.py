"""A source that reads a stream in Redis or Valkey. Each entry is a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from ..store.values import CursorMove, Note
from .base import (
    BATCH_BYTES,
    EARLIEST,
    FAIL,
    LATEST,
    Gap,
    InvalidPosition,
    Reader,
    Record,
    Source,
    check_name,
    check_words,
    library_problems,
    to_datetime,
)

# The longest wait for an answer from the server, in seconds.
TIMEOUT = 10.0
# The number of entries to request at once: their size is known only afterwards.
PORTION = 32
FIRST = "0-0"
# An id, and optionally the number of entries up to it.
_POSITION = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?( [0-9]{1,19})?")
MAX_NUMBER = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class StreamRecord(Record):
    """An entry in a stream. ``fields`` has its fields by name; ``data`` is the field "data"."""

    fields: Mapping[str, bytes]


class RedisStream(Source):
    """A source that reads a stream in Redis 7 or Valkey, by ids, without a consumer group.

    ``url`` is the address of the server. A new tailer begins at ``start``: "earliest" or "latest".
    If ``trim`` is true, the tailer removes the entries that it has committed, except the last one,
    so nobody else may read the stream. ``on_gap`` decides what happens if entries were removed
    before the tailer read them: "fail" raises Gap, "skip" continues with the entries still there.
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
        yield from library_problems("redis", "redis")

    def check_position(self, position: str) -> None:
        _parse_position(position)

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
        values = {name: packed[name] for name in ("shard", "position", "time")}
        return StreamRecord(fields=fields, data=fields.get("data", b""), **values)


class _Reader(Reader):
    """Reads a stream. A position is an entry's id, and the number of entries added up to it.

    The server counts the entries that were ever added, and those that it still has. So the number
    of entries removed unread is exact, unless somebody deleted and recreated the stream, or an
    operator has set a position without a number.
    """

    def __init__(self, source: RedisStream, client: Any, position: str | None) -> None:
        self._source, self._client = source, client
        self._committed = position
        self._last = FIRST
        self._count: int | None = None
        # The position to which the cursor moves without a record.
        self._jump: str | None = None
        # Notes about the entries that the cursor skips when it moves to a position.
        self._lost: dict[str, list[Note]] = {}
        if position is not None:
            self._last, self._count = _parse_position(position)
            return
        # Set the cursor before the first record is read, so that entries removed from now on are
        # counted.
        state, _ = self._query(0)
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
        self._committed, self._jump = self._jump, None

    def read(self, limit: int) -> Sequence[Record]:
        """Read up to ``limit`` entries, or BATCH_BYTES; stop before a gap in the stream."""
        records: list[StreamRecord] = []
        size = 0
        while len(records) < limit and size < BATCH_BYTES:
            portion = min(limit - len(records), PORTION)
            state, entries = self._query(portion)
            if records and not state.has_last:
                break  # there may be a gap: commit the records before it first
            if not records and self._skips_gap(state):
                state, entries = self._query(portion)
            for id, fields in entries:
                records.append(self._make_record(id.decode(), fields))
                size += sum(map(len, fields.values()))
            if len(entries) < portion:
                self._count_deleted(state, records)
                break
        return records

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        notes = [note for record in records for note in self._lost.get(record.position, ())]
        return [self._move(records[-1].position, notes)]

    def settled(self, records: Sequence[Record]) -> None:
        self._committed = records[-1].position
        for record in records:
            self._lost.pop(record.position, None)
        if self._source.trim:
            last, _ = _parse_position(self._committed)
            self._client.xtrim(self._source.key, minid=last, approximate=False)

    def behind(self) -> int:
        state, _ = self._query(0)
        last, count = (FIRST, None) if self._committed is None else _parse_position(self._committed)
        if last == state.last:
            return 0
        return min(state.length, max(0, state.added - (count or 0)))

    def _move(self, after: str, notes: Sequence[Note] | None = None) -> CursorMove:
        notes = tuple(self._lost.get(after, ()) if notes is None else notes)
        return CursorMove(shard=self._source.key, before=self._committed, after=after, notes=notes)

    def _position(self) -> str:
        return self._last if self._count is None else f"{self._last} {self._count}"

    def _make_record(self, id: str, fields: Mapping[bytes, bytes]) -> StreamRecord:
        """Make the record for an entry, and remember the entry as the last one that was read."""
        self._last = id
        if self._count is not None:
            self._count += 1
        by_name = {name.decode(errors="backslashreplace"): value for name, value in fields.items()}
        milliseconds = int(id.partition("-")[0])
        return StreamRecord(
            shard=self._source.key,
            position=self._position(),
            data=by_name.get("data", b""),
            time=to_datetime(milliseconds / 1000),
            fields=by_name,
        )

    def _skips_gap(self, state: _State) -> bool:
        """Skip a gap after the last entry that was read; return True if there was a gap.

        The next query then continues after the gap. Raises Gap if ``on_gap`` is "fail".
        """
        if not state.added or self._last == state.last:
            return False
        if self._last == FIRST and self._count is None:
            return False  # an operator has set it to the beginning
        if _id_key(self._last) > _id_key(state.last):
            message = f"the stream ends at {state.last}, before {self._last}, which was read"
            self._skip_gap(None, message, state.last, state.added)
            return True
        removed = state.added - state.length
        if state.has_last or not state.is_trimmed_to(self._last):
            return False  # single entries that somebody deleted are counted at the end
        if self._count is None:
            if not removed:
                return False
            message = f"at most {removed} entries after {self._last} are missing"
            self._skip_gap(None, message, self._last, removed)
            return True
        lost = removed - self._count
        if lost > 0:
            message = f"{lost} entries after {self._last} were removed unread"
            self._skip_gap(lost, message, self._last, removed)
        elif lost < 0:
            message = f"the stream was recreated after {self._last}: the number lost is unknown"
            self._add_jump(Note(kind="lost", count=None, message=message), self._last, removed)
        return lost != 0

    def _count_deleted(self, state: _State, records: list[StreamRecord]) -> None:
        """Once all entries are read, count the single entries that somebody deleted unread."""
        if not state.added:
            return
        lost = 0 if self._count is None else state.added - self._count
        self._count = state.added
        if lost <= 0:
            return
        message = f"{lost} entries were deleted before they were read"
        note = Note(kind="lost", count=lost, message=message)
        if not records:
            self._add_jump(note, state.last, state.added)
            return
        records[-1] = replace(records[-1], position=self._position())
        self._lost[records[-1].position] = [note]

    def _skip_gap(self, lost: int | None, message: str, last: str, count: int) -> None:
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {message}.")
        self._add_jump(Note(kind="lost", count=lost, message=message), last, count)

    def _add_jump(self, note: Note, last: str, count: int) -> None:
        self._last, self._count = last, count
        notes = [*self._lost.pop(self._jump or "", ()), note]
        self._jump = self._position()
        self._lost[self._jump] = notes

    def _query(self, limit: int) -> tuple[_State, Sequence[tuple[bytes, dict[bytes, bytes]]]]:
        """Return the state of the stream and its next entries, both from one transaction."""
        from redis import ResponseError

        key = self._source.key
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xinfo_stream(key)
            pipeline.xrange(key, self._last, self._last)
            if limit:
                pipeline.xread({key: self._last}, count=limit)
            info, last, *read = pipeline.execute(raise_on_error=False)
        if isinstance(info, ResponseError) and "no such key" in str(info):
            return _State(0, 0, "", FIRST, False), ()
        for answer in (info, last, *read):
            if isinstance(answer, Exception):
                raise answer
        state = _State(
            info["entries-added"],
            info["length"],
            _first_id(info),
            info["last-generated-id"].decode(),
            bool(last),
        )
        return state, (read[0][0][1] if read and read[0] else ())


@dataclass(frozen=True)
class _State:
    """The state of a stream.

    ``added`` is the number of entries that were ever added, and ``length`` the number of those
    still there. ``first`` is the id of the first entry still there, or "" if the stream is empty.
    ``last`` is the last id that the server has assigned. ``has_last`` is True if the entry that the
    tailer read last is still there.
    """

    added: int
    length: int
    first: str
    last: str
    has_last: bool

    def is_trimmed_to(self, id: str) -> bool:
        """Return True if all entries up to this id have been removed."""
        return not self.first or _id_key(self.first) > _id_key(id)


def _first_id(info: Mapping[str, Any]) -> str:
    entry = info["first-entry"]
    return entry[0].decode() if entry else ""


def _parse_position(position: str) -> tuple[str, int | None]:
    """Return the id in a position, and the number of entries up to it. Raises InvalidPosition."""
    last, _, count = position.partition(" ")
    if not _POSITION.fullmatch(position) or max(_id_key(last)) > MAX_NUMBER:
        raise InvalidPosition(
            f"{position!r} is not a position in a stream, such as 1700000000000-0."
        )
    return last, int(count) if count else None


def _id_key(id: str) -> tuple[int, int]:
    time, _, number = id.partition("-")
    return int(time), int(number or 0)
