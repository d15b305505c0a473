"""A topic of Kafka, or of a server that speaks its protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..exceptions import InvalidType
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

# In seconds: how long the servers may take to answer, how long more records of a batch are waited
# for, and how long the first record, or the end of a partition.
TIMEOUT, WAIT, PATIENCE = 10.0, 1.0, 30.0
# The number of records that are taken from the library at once: their size is known afterwards.
PORTION = 32
MAX_OFFSET = 2**63 - 1
# Set here, as each record is read from a position that ATP keeps.
_OWN = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
}


class Kafka(Source):
    """The records of a topic; each partition is a shard, as ``scenes/0``.

    ``servers`` are addresses as "a:9092,b:9092"; ``config`` has further settings of librdkafka, as
    those of TLS. A partition that has not been read yet is begun at ``start``: "earliest" or
    "latest". ``on_gap`` decides what happens if records were removed that had not been read:
    "fail" raises Gap, "skip" goes on with what is there. No consumer group is joined. Raises
    InvalidType.
    """

    def __init__(
        self,
        topic: str,
        *,
        servers: str,
        start: str = EARLIEST,
        on_gap: str = FAIL,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        check_name("Kafka", "topic", topic)
        check_name("Kafka", "servers", servers)
        check_words("Kafka", start=start, on_gap=on_gap)
        for name in config or {}:
            if name in _OWN or name == "bootstrap.servers":
                raise InvalidType(f"Kafka(config={{{name!r}: …}}): ATP sets that itself.")
        self.topic, self.servers, self.start, self.on_gap = topic, servers, start, on_gap
        self._config = dict(config or {})

    def __str__(self) -> str:
        return f"kafka://{self.servers} {self.topic}"

    def problems(self) -> Iterator[str]:
        yield from missing("confluent_kafka", "kafka")

    def check_position(self, position: str) -> None:
        _parsed(position)

    @contextmanager
    def open(self, positions: Mapping[str, str]) -> Iterator[Reader]:
        from confluent_kafka import Consumer

        # A group is never joined, but the library wants a name.
        given = {"group.id": "atp", "bootstrap.servers": self.servers, "log_level": 3}
        consumer = Consumer(given | self._config | _OWN)
        try:
            yield _Reader(self, consumer, positions)
        finally:
            consumer.close()


class _Reader(Reader):
    """A position is the offset of the record that is next."""

    def __init__(self, source: Kafka, consumer: Any, positions: Mapping[str, str]) -> None:
        self._source, self._consumer = source, consumer
        self._positions = dict(positions)
        self._partitions = self._find_partitions()
        # The partitions whose end has been reached, and the offsets that are next.
        self._ended: set[int] = set()
        self._next: dict[int, int] = {}
        # Positions to which cursors are set without a record.
        self._jumps: dict[str, str] = {}
        # What these jumps pass over.
        self._lost: dict[str, list[Note]] = {}
        # The partitions of which records are missing behind those that were read.
        self._gaps: set[int] = set()
        # The cursors are set before there is a record, so that what is removed from now on is
        # counted. A partition that is added later is read from its beginning.
        is_latest = source.start == LATEST and not positions
        for each in self._partitions:
            if self._shard(each) not in self._positions:
                low, high = self._watermarks(each)
                self._jumps[self._shard(each)] = str(high if is_latest else low)
        self._assign()

    def jumps(self) -> Sequence[CursorMove]:
        return [
            CursorMove(
                shard=shard,
                before=self._positions.get(shard),
                after=after,
                notes=tuple(self._lost.get(shard, ())),
            )
            for shard, after in self._jumps.items()
        ]

    def jumped(self) -> None:
        self._positions |= self._jumps
        self._jumps, self._lost = {}, {}

    def read(self, limit: int) -> Sequence[Record]:
        """Read until the end of each partition, or until nothing has come for a while.

        Reading also ends at BATCH_BYTES. Raises TimeoutError if there is neither a record nor an
        end.
        """
        found: list[Record] = []
        size = 0
        came = time.monotonic()
        self._pass_over()
        while (
            len(found) < limit
            and size < BATCH_BYTES
            and not self._ended.issuperset(self._partitions)
        ):
            if time.monotonic() - came > (WAIT if found else PATIENCE):
                break
            messages = self._consumer.consume(min(limit - len(found), PORTION), timeout=0.1)
            size += sum(len(message.value() or b"") for message in messages)
            records = [
                self._record(message)
                for message in messages
                if message.error() is None and self._is_next(message)
            ]
            if records:
                came = time.monotonic()
            found += records
            # Afterwards, as an error may have all partitions read anew from where they are.
            for message in messages:
                if message.error() is not None:
                    self._on_error(message)
            if found and self._gaps:
                break  # the records before a gap are settled before the cursor moves over it
            self._pass_over()
        if not found and not self._ended.issuperset(self._partitions):
            raise TimeoutError(
                f"{self._source}: neither a record nor the end of the partitions came within "
                f"{PATIENCE:g} s."
            )
        return found

    def _is_next(self, message: Any) -> bool:
        """Note the offset behind a record; False if the record was read already."""
        partition, offset = message.partition(), message.offset()
        if offset < self._next.get(partition, 0):
            return False
        self._next[partition] = offset + 1
        return True

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        last = {record.shard: record.position for record in records}
        return [
            CursorMove(shard=shard, before=self._positions.get(shard), after=position)
            for shard, position in last.items()
        ]

    def settled(self, records: Sequence[Record]) -> None:
        self._positions |= {record.shard: record.position for record in records}

    def behind(self) -> int:
        left = 0
        for partition in self._partitions:
            low, high = self._watermarks(partition)
            position = self._positions.get(self._shard(partition))
            left += max(0, high - (low if position is None else _parsed(position)))
        return left

    def _find_partitions(self) -> list[int]:
        from confluent_kafka import KafkaException

        topics = self._consumer.list_topics(self._source.topic, timeout=TIMEOUT).topics
        topic = topics[self._source.topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        return sorted(topic.partitions)

    def _assign(self) -> None:
        """Have the library read each partition from the offset that is next."""
        self._ended.clear()
        self._consumer.assign([self._at(each, self._offset(each)) for each in self._partitions])

    def _offset(self, partition: int) -> int:
        if partition in self._next:
            return self._next[partition]
        shard = self._shard(partition)
        return _parsed(self._jumps.get(shard) or self._positions[shard])

    def _shard(self, partition: int) -> str:
        return f"{self._source.topic}/{partition}"

    def _watermarks(self, partition: int) -> tuple[int, int]:
        """Return the offset of the first record that is there, and that of the next one to come."""
        found = self._consumer.get_watermark_offsets(self._at(partition), timeout=TIMEOUT)
        if found is None:
            raise TimeoutError(f"{self._source}: no answer within {TIMEOUT:g} s.")
        return found

    def _at(self, partition: int, *offset: int) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._source.topic, partition, *offset)

    def _on_error(self, message: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        error, partition = message.error(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(partition)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._gaps.add(partition)
        elif not error.retriable():
            raise KafkaException(error)

    def _pass_over(self) -> None:
        """Raise Gap, or go on with the next records that are there, or are to come."""
        if not self._gaps:
            return
        for partition in sorted(self._gaps):
            low, high = self._watermarks(partition)
            offset = self._offset(partition)
            if offset < low:
                lost = low - offset
                told = f"{lost} records of partition {partition} were removed unread"
                self._add_jump(partition, low, Note(kind="lost", count=lost, message=told))
            elif offset > high:
                told = f"partition {partition} ends at {high}, before {offset}, which is next"
                self._add_jump(partition, high, Note(kind="lost", count=None, message=told))
            # Otherwise the server has answered too early: the position is asked for again.
        self._gaps = set()
        self._assign()

    def _add_jump(self, partition: int, next: int, note: Note) -> None:
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {note.message}.")
        shard = self._shard(partition)
        self._lost.setdefault(shard, []).append(note)
        self._next[partition] = next
        self._jumps[shard] = str(next)

    def _record(self, message: Any) -> Record:
        _, milliseconds = message.timestamp()
        headers = {
            name: (value or b"").decode(errors="backslashreplace")
            for name, value in message.headers() or ()
        }
        return Record(
            shard=self._shard(message.partition()),
            position=str(message.offset() + 1),
            data=message.value() or b"",
            key=message.key(),
            headers=headers,
            time=instant(milliseconds / 1000) if milliseconds > 0 else None,
        )


def _parsed(position: str) -> int:
    """Return a position as an offset. Raises OddPosition."""
    if not (position.isascii() and position.isdigit()) or int(position) > MAX_OFFSET:
        raise OddPosition(
            f"{position!r} is no offset: a position of Kafka is that of the next record, as 1200."
        )
    return int(position)
