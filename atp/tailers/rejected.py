"""Mapping a record again that was put aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..exceptions import Fatal
from ..verbs.enqueueing import enqueue_calls
from .tailer import Tailer


def map_again(tailer: Tailer, packed: Mapping[str, Any]) -> int:
    """Map a packed record and enqueue its calls; return their number. Raises Fatal."""
    if packed.get("is_cut"):
        raise Fatal(
            f"The record of shard {packed['shard']!r} whose position is {packed['position']!r} "
            "cannot be kept as inputs, so only its beginning is here. The source has the whole.",
            fingerprint="cut",
        )
    return len(enqueue_calls(tailer(tailer.source.unpack(packed))))
