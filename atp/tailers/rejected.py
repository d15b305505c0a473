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
            f"The record at {packed['position']!r} of shard {packed['shard']!r} cannot be kept "
            "as inputs, so only its beginning is here: seek the tailer to read it again.",
            fingerprint="cut",
        )
    return len(enqueue_calls(tailer(tailer.source.unpack(packed))))
