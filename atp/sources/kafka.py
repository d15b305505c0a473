"""A source that reads a topic of Kafka, or of a server that speaks Kafka's protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..exceptions import InvalidType
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

# In seconds: the longest wait for an answer from the servers; for further records of a batch; and
# for the first record, or for the end of a partition.
TIMEOUT, WAIT, PATIENCE = 10.0, 1.0, 30.0
# The number of records to take from the library at once: their size is known only afterwards.
PORTION = 32
MAX_OFFSET = 2**63 - 1
# Settings that the project cannot change, because ATP keeps the positions.
_FIXED_SETTINGS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
}


class Kafka(Source):
    """A source that reads a Kafka topic. Each partition is a shard, such as ``scenes/0``.

    ``servers`` are addresses such as "a:9092,b:9092"; ``config`` has further settings for
    librdkafka, such as those for TLS. A new tailer begins at ``start``: "earliest" or "latest". A
    partition that is added later is read from its beginning. ``on_gap`` decides what happens if
    Kafka removed records before the tailer read them: "fail" raises Gap, "skip" continues with the
    records still there. The tailer joins no consumer group. Raises InvalidType.
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
            if name in _FIXED_SETTINGS or name == "bootstrap.servers":
                raise InvalidType(f"Kafka(config={{{name!r}: …}}): only ATP may set this.")
        self.topic, self.servers, self.start, self.on_gap = topic, servers, start, on_gap
        self._config = dict(config or {})

    def __str__(self) -> str:
        return f"kafka://{self.servers} {self.topic}"

    def problems(self) -> Iterator[str]:
        yield from library_problems("confluent_kafka", "kafka")

    def check_position(self, position: str) -> None:
        _parse_offset(position)

    @contextmanager
    def open(self, positions: Mapping[str, str]) -> Iterator[Reader]:
        from confluent_kafka import Consumer

        # The consumer never joins a group, but the library requires a name.
        defaults = {"group.id": "atp", "bootstrap.servers": self.servers, "log_level": 3}
        consumer = Consumer(defaults | self._config | _FIXED_SETTINGS)
        try:
            yield _Reader(self, consumer, positions)
        finally:
            consumer.close()


class _Reader(Reader):
    """Reads the partitions of a topic. A position is the offset of the next record."""

    def __init__(self, source: Kafka, consumer: Any, positions: Mapping[str, str]) -> None:
        self._source, self._consumer = source, consumer
        self._positions = dict(positions)
        self._partitions = self._find_partitions()
        # The partitions that were read to their end, and the offset of the next record in each.
        self._ended_partitions: set[int] = set()
        self._next_offsets: dict[int, int] = {}
        # Positions to which cursors move without a record.
        self._jumps: dict[str, str] = {}
        # Notes about the records that these jumps skip.
        self._lost: dict[str, list[Note]] = {}
        # The partitions that lack the next record.
        self._gaps: set[int] = set()
        # Set the cursors before the first record is read, so that records removed from now on
        # are counted. A partition that is added later is read from its beginning.
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
        """Read until the end of each partition, or until no record has come for WAIT seconds.

        Reading also stops at ``limit`` records or BATCH_BYTES. Raises TimeoutError if neither a
        record nor the end of the partitions comes within PATIENCE seconds.
        """
        batch: list[Record] = []
        size = 0
        last_arrival = time.monotonic()
        self._skip_gaps()
        while (
            len(batch) < limit
            and size < BATCH_BYTES
            and not self._ended_partitions.issuperset(self._partitions)
        ):
            if time.monotonic() - last_arrival > (WAIT if batch else PATIENCE):
                break
            messages = self._consumer.consume(min(limit - len(batch), PORTION), timeout=0.1)
            size += sum(len(message.value() or b"") for message in messages)
            records = [
                self._make_record(message)
                for message in messages
                if message.error() is None and self._advance_past(message)
            ]
            if records:
                last_arrival = time.monotonic()
            batch += records
            # Errors come last, because one may restart reading all partitions at their positions.
            for message in messages:
                if message.error() is not None:
                    self._handle_error(message)
            if batch and self._gaps:
                break  # commit the records before a gap before the cursor moves over it
            self._skip_gaps()
        if not batch and not self._ended_partitions.issuperset(self._partitions):
            raise TimeoutError(
                f"{self._source}: neither a record nor the end of the partitions came within "
                f"{PATIENCE:g} s."
            )
        return batch

    def _advance_past(self, message: Any) -> bool:
        """Remember the offset after a record; return False if the record was read already."""
        partition, offset = message.partition(), message.offset()
        if offset < self._next_offsets.get(partition, 0):
            return False
        self._next_offsets[partition] = offset + 1
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
            left += max(0, high - (low if position is None else _parse_offset(position)))
        return left

    def _find_partitions(self) -> list[int]:
        from confluent_kafka import KafkaException

        topics = self._consumer.list_topics(self._source.topic, timeout=TIMEOUT).topics
        topic = topics[self._source.topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        return sorted(topic.partitions)

    def _assign(self) -> None:
        """Tell the library to read each partition from its next offset."""
        self._ended_partitions.clear()
        self._consumer.assign(
            [self._topic_partition(each, self._offset(each)) for each in self._partitions]
        )

    def _offset(self, partition: int) -> int:
        if partition in self._next_offsets:
            return self._next_offsets[partition]
        shard = self._shard(partition)
        return _parse_offset(self._jumps.get(shard) or self._positions[shard])

    def _shard(self, partition: int) -> str:
        return f"{self._source.topic}/{partition}"

    def _watermarks(self, partition: int) -> tuple[int, int]:
        """Return two offsets: of the first record still there, and of the next new record."""
        asked = self._topic_partition(partition)
        watermarks = self._consumer.get_watermark_offsets(asked, timeout=TIMEOUT)
        if watermarks is None:
            raise TimeoutError(f"{self._source}: no answer within {TIMEOUT:g} s.")
        return watermarks

    def _topic_partition(self, partition: int, *offset: int) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._source.topic, partition, *offset)

    def _handle_error(self, message: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        error, partition = message.error(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended_partitions.add(partition)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._gaps.add(partition)
        elif not error.retriable():
            raise KafkaException(error)

    def _skip_gaps(self) -> None:
        """For each partition with a gap, move the cursor over the gap, or raise Gap.

        The cursor moves to the first record still there, or to the end of the partition.
        """
        if not self._gaps:
            return
        for partition in sorted(self._gaps):
            low, high = self._watermarks(partition)
            offset = self._offset(partition)
            if offset < low:
                lost = low - offset
                message = f"{lost} records of partition {partition} were removed unread"
                self._add_jump(partition, low, Note(kind="lost", count=lost, message=message))
            elif offset > high:
                message = f"partition {partition} ends at {high}, before {offset}, which is next"
                self._add_jump(partition, high, Note(kind="lost", count=None, message=message))
            # Otherwise the server answered too early, and reading starts again at the offset.
        self._gaps = set()
        self._assign()

    def _add_jump(self, partition: int, next: int, note: Note) -> None:
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {note.message}.")
        shard = self._shard(partition)
        self._lost.setdefault(shard, []).append(note)
        self._next_offsets[partition] = next
        self._jumps[shard] = str(next)

    def _make_record(self, message: Any) -> Record:
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
            time=to_datetime(milliseconds / 1000) if milliseconds > 0 else None,
        )


def _parse_offset(position: str) -> int:
    """Return a position as an offset. Raises InvalidPosition."""
    if not (position.isascii() and position.isdigit()) or int(position) > MAX_OFFSET:
        raise InvalidPosition(
            f"{position!r} is not an offset: a Kafka position is the offset of the next record, "
            "such as 1200."
        )
    return int(position)
