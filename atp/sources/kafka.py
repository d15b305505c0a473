"""A topic of Kafka, or of a server that speaks its protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..exceptions import Fatal, InvalidType
from ..store.values import CursorMove
from .base import Gap, Reader, Record, Source
from .parameters import EARLIEST, FAIL, LATEST, check_name, check_words, instant, missing

# In seconds: how long the servers may take to answer, how long more records of a batch are waited
# for, and how long the first record, or the end of a partition.
TIMEOUT, WAIT, PATIENCE = 10.0, 1.0, 30.0
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
        self._notes: list[str] = []
        self._partitions = self._find_partitions()
        # The partitions whose end has been reached, and the offsets that are next.
        self._ended: set[int] = set()
        self._next: dict[int, int] = {}
        # Positions to which cursors are set without a record.
        self._jumps: dict[str, str] = {}
        if source.start == LATEST and not positions:
            ends = {each: self._watermarks(each)[1] for each in self._partitions}
            self._jumps = {self._shard(each): str(end) for each, end in ends.items()}
        self._assign()

    def jumps(self) -> Sequence[CursorMove]:
        return [
            CursorMove(shard=shard, before=self._positions.get(shard), after=after)
            for shard, after in self._jumps.items()
        ]

    def jumped(self) -> None:
        self._positions |= self._jumps
        self._jumps = {}

    def read(self, limit: int) -> Sequence[Record]:
        """Read until the end of each partition, or until nothing has come for a while.

        Raises TimeoutError if there is neither a record nor an end.
        """
        found: list[Record] = []
        came = time.monotonic()
        while len(found) < limit and not self._ended.issuperset(self._partitions):
            if time.monotonic() - came > (WAIT if found else PATIENCE):
                break
            messages = self._consumer.consume(limit - len(found), timeout=0.1)
            if messages:
                came = time.monotonic()
            found += [
                self._record(message)
                for message in messages
                if message.error() is None and self._is_next(message)
            ]
            # Afterwards, as an error may have all partitions read anew from where they are.
            for message in messages:
                if message.error() is not None:
                    self._on_error(message)
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

    def notes(self) -> Sequence[str]:
        return self._notes

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
        from confluent_kafka import OFFSET_BEGINNING

        if partition in self._next:
            return self._next[partition]
        shard = self._shard(partition)
        position = self._jumps.get(shard, self._positions.get(shard))
        return OFFSET_BEGINNING if position is None else _parsed(position)

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
            self._on_gap(partition)
        elif not error.retriable():
            raise KafkaException(error)

    def _on_gap(self, partition: int) -> None:
        """Raise Gap, or go on with the next record that is there, or is to come."""
        low, high = self._watermarks(partition)
        offset = self._offset(partition)
        next, told = high, f"partition {partition} ends at {high}, before {offset}, which is next"
        if offset < low:
            next, told = low, f"{low - offset} records of partition {partition} were removed unread"
        if self._source.on_gap == FAIL:
            raise Gap(f"{self._source}: {told}.")
        self._notes.append(told)
        self._next[partition] = next
        self._jumps[self._shard(partition)] = str(next)
        self._assign()

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
    """Return a position as an offset. Raises Fatal."""
    if not (position.isascii() and position.isdigit()):
        raise Fatal(f"{position!r} is no offset: a position of Kafka is that of the next record.")
    return int(position)
