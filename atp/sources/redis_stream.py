"""A stream of Redis, or of Valkey: its entries are records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..exceptions import Fatal
from ..store.values import CursorMove
from .base import Gap, Reader, Record, Source
from .parameters import EARLIEST, FAIL, LATEST, check_name, check_words, instant, missing

# How long the server may take to answer, in seconds.
TIMEOUT = 10.0
FIRST = "0-0"


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
    """A position is the id of an entry, and the number of entries up to it.

    As long as that entry is in the stream, nothing behind it was trimmed.
    """

    def __init__(self, source: RedisStream, client: Any, position: str | None) -> None:
        self._source, self._client = source, client
        self._begin = position
        self._notes: list[str] = []
        self._last, self._count = FIRST, 0
        # The position to which the cursor is set without a record.
        self._jump: str | None = None
        if position is not None:
            self._last, self._count = _parsed(position)
        else:
            state, _ = self._look(0)
            if source.start == LATEST:
                self._last, self._count = state.last, state.added
                self._jump = self._position()
            else:
                self._count = state.added - state.length

    def jumps(self) -> Sequence[CursorMove]:
        if self._jump is None:
            return ()
        return [CursorMove(shard=self._source.key, before=self._begin, after=self._jump)]

    def jumped(self) -> None:
        self._begin, self._jump = self._jump, None

    def read(self, limit: int) -> Sequence[Record]:
        state, entries = self._look(limit)
        if self._has_gap(state):
            state, entries = self._look(limit)
        records = []
        for id, fields in entries:
            self._last = id.decode()
            self._count += 1
            if self._last == state.last:
                self._count = state.added
            records.append(self._record(fields))
        return records

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        key = self._source.key
        return [CursorMove(shard=key, before=self._begin, after=records[-1].position)]

    def settled(self, records: Sequence[Record]) -> None:
        self._begin = records[-1].position
        if self._source.trim:
            last, _ = _parsed(self._begin)
            self._client.xtrim(self._source.key, minid=last, approximate=False)

    def behind(self) -> int:
        state, _ = self._look(0)
        last, count = (FIRST, 0) if self._begin is None else _parsed(self._begin)
        if last == state.last:
            return 0
        return min(state.length, max(0, state.added - count))

    def notes(self) -> Sequence[str]:
        return self._notes

    def _position(self) -> str:
        return f"{self._last} {self._count}"

    def _record(self, fields: Mapping[bytes, bytes]) -> StreamRecord:
        named = {name.decode(errors="backslashreplace"): value for name, value in fields.items()}
        milliseconds = int(self._last.partition("-")[0])
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
        if self._last in (FIRST, state.last) or state.has_last or not state.added:
            return False
        if _order(self._last) > _order(state.last):
            self._on_gap(f"the stream ends at {state.last}, before {self._last}, which was read")
            self._last, self._count = state.last, state.added
            self._jump = self._position()
            return True
        removed = state.added - state.length
        if state.added < self._count or removed <= self._count:
            return False  # it was made anew, or all that is missing had been read
        self._on_gap(f"up to {removed - self._count} entries behind {self._last} are missing")
        self._count = removed
        return True

    def _on_gap(self, what: str) -> None:
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {what}.")
        self._notes.append(what)

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
            return _State(0, 0, FIRST, False), ()
        for answer in (found, last, *read):
            if isinstance(answer, Exception):
                raise answer
        state = _State(
            found["entries-added"],
            found["length"],
            found["last-generated-id"].decode(),
            bool(last),
        )
        return state, (read[0][0][1] if read and read[0] else ())


@dataclass(frozen=True)
class _State:
    """A stream: the number of entries ever added and still there, and the last id ever given.

    ``has_last`` tells whether the entry that was read last is still there.
    """

    added: int
    length: int
    last: str
    has_last: bool


def _parsed(position: str) -> tuple[str, int]:
    """Return the id in a position, and the number of entries up to it. Raises Fatal."""
    last, _, count = position.partition(" ")
    try:
        _order(last)
        return last, int(count or 0)
    except ValueError:
        raise Fatal(f"{position!r} is no position of a stream, as 1700000000000-0.") from None


def _order(id: str) -> tuple[int, int]:
    time, _, number = id.partition("-")
    return int(time), int(number or 0)
