"""Mapping records to calls, and putting aside those that cannot be mapped."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from ..authoring.log_text import words
from ..authoring.raised import facts
from ..exceptions import Defer, Interrupted, Retry
from ..sources import Record
from ..verbs.enqueueing import Prepared, prepare
from .tailer import Tailer

# These say nothing of the record: the attempt ends, and the record stays where it is.
OF_THE_ATTEMPT = (Interrupted, Retry, Defer, OperationalError, InterfaceError)
MAX_ERROR = 500
# The size up to which the data of a record is kept that is too large for inputs, in bytes.
KEPT = 1000
# About what a prepared call takes beside its inputs, in bytes.
CALL = 1000


@dataclass(frozen=True)
class Mapped:
    """A record with its prepared calls; ``is_rejected`` if they put it aside.

    ``is_left`` tells that it can neither be mapped nor put aside: it stays in the source.
    """

    record: Record
    calls: tuple[Prepared, ...] = ()
    is_rejected: bool = False
    is_left: bool = False

    @property
    def size(self) -> int:
        """About how many bytes of memory the calls take."""
        return sum(CALL + len(each.submission.inputs.data) for each in self.calls)


def mapped(tailer: Tailer, record: Record) -> Mapped:
    """Map a record; put it aside if the tailer's function raises, or its calls are invalid."""
    try:
        return Mapped(record, tuple(prepare(call) for call in tailer(record)))
    except OF_THE_ATTEMPT:
        raise
    except Exception as error:
        return rejected(tailer, record, f"{facts.name(error)}: {words(error)}")


def rejected(tailer: Tailer, record: Record, error: str) -> Mapped:
    """Put a record aside: an Instance of its own maps it again.

    If the source keeps the record, its position is enough. Otherwise all of it has to be kept.
    """
    error = error if len(error) <= MAX_ERROR else error[: MAX_ERROR - 1] + "…"
    try:
        call = prepare(tailer.rejected.call(record=tailer.source.pack(record), error=error))
    except OF_THE_ATTEMPT:
        raise
    except Exception:  # its values are the project's own, and so is their serialization
        if tailer.source.removes:
            return Mapped(record, is_left=True)
        kept = {"shard": record.shard, "position": record.position, "data": record.data[:KEPT]}
        call = prepare(tailer.rejected.call(record={**kept, "is_cut": True}, error=error))
    return Mapped(record, (call,), is_rejected=True)
