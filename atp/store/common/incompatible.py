"""Misfits: Instances whose inputs do not fit the handler of the daemon that claimed them.

A misfit is deferred, since another daemon may have a handler that takes its inputs, as during a
rolling deploy. Only its log records that: it tells since when no handler has taken the
inputs, and which handlers have refused them.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from ... import messages
from ...conf import settings
from ...exceptions import InvalidInputs, dotted_path
from ...models import Daemon, LogRecord, read_signature
from ...states import Event, Reason
from ...text import as_timedelta
from ..values import Move

# The first delay, doubled each time up to the longest. While a living daemon may take the inputs,
# the longest is LONGEST_WITH_ANOTHER.
FIRST_MISFIT, LONGEST_MISFIT = timedelta(seconds=5), timedelta(seconds=60)
LONGEST_WITH_ANOTHER = timedelta(seconds=15)
# Before each such delay, the Instance is due at once for at most this many times: each daemon
# that has refused it leaves its Type to the others for a moment.
MOST_AT_ONCE = 10
_DOUBLINGS = 8
# The detail of such a failure: the exception by which an enqueue refuses such inputs.
_REFUSED = dotted_path(InvalidInputs(""))


def is_misfit(move: Move) -> bool:
    """Return whether a move says that the inputs do not fit the handler."""
    return move.event == Event.DEFER and read_signature(move.detail) is not None


def misfits_of(records: Any, attempt: int = 0) -> list[tuple[datetime, str]]:
    """Return the misfits of an Instance since a handler last ran: pairs (time, signature).

    ``records`` is a QuerySet of the Instance's log. ``attempt`` is the attempt that misfits now. A
    redrive starts anew.
    """
    kinds = [Event.START, Event.DEFER, Event.REDRIVE]
    rows = records.filter(kind__in=kinds).values_list("kind", "attempt", "detail", "time")
    found: dict[int, tuple[datetime, str]] = {}
    entered, since = set(), 0
    for kind, number, detail, time in rows:
        signature = read_signature(detail)
        if kind == Event.REDRIVE:
            since = max(since, number)
        elif kind == Event.DEFER and signature is not None:
            found[number] = time, signature
        elif number != attempt:
            entered.add(number)
    since = max([since, *(entered - set(found))])
    return [misfit for number, misfit in found.items() if number > since]


def takers(daemons: Iterable[Any], identifier: str, refused: Iterable[str]) -> tuple[int, int]:
    """Return how many of these daemons may take inputs of a Type, and how many do not.

    ``refused`` are the signatures of handlers that did not take them. A daemon that does not tell
    its signature may take them. Each daemon has ``types`` and ``signatures``.
    """
    known = set(refused)
    told = [
        _of(daemon.signatures, dict).get(identifier, "")
        for daemon in daemons
        if identifier in _of(daemon.types, list)
    ]
    refusing = sum(signature in known for signature in told)
    return len(told) - refusing, refusing


def _of(value: Any, kind: type) -> Any:
    """Return a value of this type; an empty one if another version wrote something else."""
    return value if isinstance(value, kind) else kind()


class Misfits:
    """Decides whether a misfit is deferred or failed, at the time ``now``."""

    def __init__(self, store: Any, now: datetime) -> None:
        self._store = store
        self._now = now

    @cached_property
    def _alive(self) -> list[Daemon]:
        rows = self._store.rows(Daemon)
        return [row for row in rows if not self._store.daemons.is_over(row, self._now)]

    def decided(self, move: Move, identifier: str) -> Move:
        """Return the move for a misfit: it is deferred for longer, or failed.

        It is not failed while a living daemon may take its inputs.
        """
        records = self._store.rows(LogRecord).filter(instance=move.instance)
        earlier = misfits_of(records, move.attempt or 0)
        refused = [signature for _, signature in earlier] + [read_signature(move.detail) or ""]
        since = min((time for time, _ in earlier), default=self._now)
        others, refusing = takers(self._alive, identifier, refused)
        if others or self._now - since < as_timedelta(settings.MISFIT_FOR):
            return move._replace(delay=_delay(len(earlier), others, refusing))
        message = messages.incompatible_too_long(move.message, since)
        return move._replace(
            event=Event.FAIL,
            reason=Reason.ERROR,
            message=message,
            level=logging.ERROR,
            delay=None,
            detail=_REFUSED,
        )


def _delay(count: int, others: int, refusing: int) -> timedelta:
    """Return the delay after ``count`` earlier misfits.

    ``others`` daemons may take the inputs, and ``refusing`` daemons do not.
    """
    if not others:
        return min(FIRST_MISFIT * 2 ** min(count, _DOUBLINGS), LONGEST_MISFIT)
    rounds, number = divmod(count, max(1, min(refusing, MOST_AT_ONCE)) + 1)
    if number < refusing:
        return timedelta()
    return min(FIRST_MISFIT * 2 ** min(rounds, _DOUBLINGS), LONGEST_WITH_ANOTHER)
