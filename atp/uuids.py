"""Public names of Instances: unguessable and ordered by time (RFC 9562, version 7)."""

import os
import time
import uuid


def uuid7():
    """Return a version 7 UUID: 48 bits of milliseconds since the epoch, 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)
