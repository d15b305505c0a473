"""An explanation as a document: plain values by name, for the shell's JSON and the API."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from ..documents import Document
from . import when
from .values import Explanation


def document(explanation: Explanation) -> Document:
    """Return an explanation as plain values; ``told`` is the estimate in words."""
    starts = explanation.starts
    return asdict(explanation) | {
        "starts": None
        if starts is None
        else {
            "low": _seconds(starts.low),
            "likely": _seconds(starts.likely),
            "high": _seconds(starts.high),
            "why": starts.why,
            "told": when.starts(starts),
        }
    }


def _seconds(delay: timedelta | None) -> float | None:
    return None if delay is None else delay.total_seconds()
