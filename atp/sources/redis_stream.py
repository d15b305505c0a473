"""A stream of Redis, or of Valkey: its entries are records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ..store.values import CursorMove
from .base import Gap, Reader, Record, Source
from .parameters import EARLIEST, FAIL, LATEST, check_name, check_words, missing

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
    so nobody else may read it. ``on_gap`` decides what happens if entries were removed that had not
    been read: "fail" raises Gap, "skip" goes on with what is there. Raises InvalidType.
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
    """A position is the id of an entry, and the number of entries up to it, if that is known."""

    def __init__(self, source: RedisStream, client: Any, position: str | None) -> None:
        self._source, self._client = source, client
        self._begin = position
        self._notes: list[str] = []
        self._last, self._count = self._first(position)

    def begins(self) -> Sequence[CursorMove]:
        if self._begin is not None or self._source.start != LATEST:
            return ()
        return [CursorMove(shard=self._source.key, before=None, after=self._position())]

    def begun(self) -> None:
        self._begin = self._position()

    def read(self, limit: int) -> Sequence[Record]:
        found = self._client.xread({self._source.key: self._last}, count=limit)
        entries = found[0][1] if found else []
        records = []
        for id, fields in entries:
            self._last = id.decode()
            if self._count is not None:
                self._count += 1
            records.append(self._record(fields))
        return records

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        key = self._source.key
        return [CursorMove(shard=key, before=self._begin, after=records[-1].position)]

    def settled(self, records: Sequence[Record]) -> None:
        self._begin = records[-1].position
        if self._source.trim:
            time, _, number = self._begin.partition(" ")[0].partition("-")
            self._client.xtrim(
                self._source.key, minid=f"{time}-{int(number) + 1}", approximate=False
            )

    def behind(self) -> int | None:
        state = self._state()
        if self._settled_id() == state.last:
            return 0
        _, _, count = (self._begin or "").partition(" ")
        if self._begin is None:
            count = "" if self._count is None else str(self._count)
        return max(0, state.added - int(count)) if count else None

    def notes(self) -> Sequence[str]:
        return self._notes

    def _position(self) -> str:
        return self._last if self._count is None else f"{self._last} {self._count}"

    def _settled_id(self) -> str:
        return self._last if self._begin is None else self._begin.partition(" ")[0]

    def _record(self, fields: Mapping[bytes, bytes]) -> StreamRecord:
        named = {name.decode(errors="backslashreplace"): value for name, value in fields.items()}
        milliseconds = int(self._last.partition("-")[0])
        return StreamRecord(
            shard=self._source.key,
            position=self._position(),
            data=named.get("data", b""),
            time=datetime.fromtimestamp(milliseconds / 1000, UTC),
            fields=named,
        )

    def _first(self, position: str | None) -> tuple[str, int | None]:
        """Return the id behind which to read, and the number of entries up to it. Raises Gap."""
        state = self._state()
        if position is None:
            if self._source.start == LATEST:
                return state.last, state.added
            return FIRST, state.added - state.length
        last, _, count = position.partition(" ")
        read = int(count) if count else None
        if last == state.last:
            return last, state.added
        if _order(last) > _order(state.last) and state.added:
            self._on_gap(f"the stream ends at {state.last}, before {last}, which was read")
            return FIRST, state.added - state.length
        if read is not None and state.added < read:
            read = None  # the stream was made anew: its entries are counted from the beginning
        removed = state.added - state.length
        is_known = read is not None and _order(state.deleted) <= _order(last)
        if is_known and read is not None and removed > read and _order(state.first) > _order(last):
            self._on_gap(f"{removed - read} entries behind {last} were removed unread")
            return last, removed
        return last, read

    def _on_gap(self, what: str) -> None:
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {what}.")
        self._notes.append(what)

    def _state(self) -> _State:
        from redis import ResponseError

        try:
            found = self._client.xinfo_stream(self._source.key)
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            return _State(0, 0, FIRST, FIRST, FIRST)
        return _State(
            found["entries-added"],
            found["length"],
            found["last-generated-id"].decode(),
            found["first-entry"][0].decode() if found["first-entry"] else FIRST,
            found["max-deleted-entry-id"].decode(),
        )


@dataclass(frozen=True)
class _State:
    """A stream: the number of entries ever added and still there; ids, also of removed ones.

    ``first`` is 0-0 if the stream is empty, ``deleted`` the highest id that was removed by XDEL.
    """

    added: int
    length: int
    last: str
    first: str
    deleted: str


def _order(id: str) -> tuple[int, int]:
    time, _, number = id.partition("-")
    return int(time), int(number or 0)
