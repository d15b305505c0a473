"""The stacks of attempts in the log: the newest one of an Instance, for a page or a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from .. import text
from ..models import ASKED, Instance, Kind, LogRecord

# A stack of a running attempt that is younger is shown; others are folded.
_FRESH = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class ShownStack:
    """A stack from the log.

    ``facts`` are sentences about the process and its database sessions. ``frames`` is the text of
    faulthandler without the frames of ATP around the handler; it is empty if the stack could not be
    taken. ``is_fresh`` is True if the stack may still say where the Instance stands.
    ``is_before_kill`` is True if the stack was taken before its worker was killed, and False if
    somebody asked for it.
    """

    time: datetime
    attempt: int | None
    facts: list[str]
    frames: str
    is_fresh: bool
    is_before_kill: bool


def newest_stack(
    instance: Instance, history: Iterable[LogRecord], now: datetime
) -> ShownStack | None:
    """Return the newest stack in the log of an Instance, or None.

    ``history`` is what :func:`.timeline.read_history` returns, or the whole log, newest first.
    """
    found = next((record for record in history if record.kind == Kind.STACK), None)
    return None if found is None else show_stack(found, instance, now)


def show_stack(record: LogRecord, instance: Instance, now: datetime) -> ShownStack:
    """Return the stack in a LogRecord of kind STACK."""
    facts, _, frames = record.message.partition("\n\n")
    is_current = record.attempt == instance.attempt and instance.is_under_way
    return ShownStack(
        time=record.time,
        attempt=record.attempt,
        facts=facts.splitlines(),
        frames=text.handler_frames(frames),
        is_fresh=is_current and now - record.time < _FRESH,
        is_before_kill=record.detail != ASKED,
    )
