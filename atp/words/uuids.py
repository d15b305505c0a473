"""The uuids of Instances: unguessable, and ordered by time (RFC 9562, version 7)."""

import os
import time
import uuid
from datetime import UTC, datetime


def uuid7() -> uuid.UUID:
    """Return a version 7 UUID: 48 bits of milliseconds since the epoch, 74 random bits."""
    return uuid.UUID(int=number())


def number() -> int:
    """Return one version 7 UUID as a number of 128 bits."""
    return _without_random() | int.from_bytes(os.urandom(_RANDOM)) & _FREE


def numbers(count: int) -> list[int]:
    """Return ``count`` version 7 UUIDs of this millisecond as numbers of 128 bits."""
    base = _without_random()
    random = os.urandom(_RANDOM * count)
    return [
        base | int.from_bytes(random[at : at + _RANDOM]) & _FREE
        for at in range(0, len(random), _RANDOM)
    ]


def time_of(uuid: uuid.UUID) -> datetime:
    """Return the time in a uuid of version 7, in milliseconds: an Instance's is of its enqueue."""
    return datetime.fromtimestamp((uuid.int >> 80) / 1000, UTC)


def _without_random() -> int:
    return (time.time_ns() // 1_000_000 & _TIME) << 80 | _VERSION


_TIME = (1 << 48) - 1
_VERSION = 0x7 << 76 | 0x2 << 62
# The random bytes of each, and the bits that time, version and variant leave free.
_RANDOM = 10
_FREE = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)
