"""The table of causes; the one that must be removed first comes first.

To add one: write a function in a module of this room that takes :class:`..facts.Facts` and
yields a :class:`..values.Reason` for each time that it applies. Add the facts that it needs to
Facts (gathered in :mod:`..gathering`), and list the function here. A code without a known end is
listed in :data:`OPEN`, and gets its short words in :mod:`..brief`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..facts import Facts
from ..values import Reason
from . import control, due, ended, held, serving, turn

Cause = Callable[[Facts], Iterator[Reason]]

CAUSES: tuple[Cause, ...] = (
    ended.no_such,
    ended.ended,
    held.cancel_asked,
    # Before what it does: nobody does that any more, or perhaps not.
    held.holder_lost,
    held.holder_late,
    held.paused,
    held.running,
    control.schedule,
    control.gate,
    due.blocked,
    due.not_due,
    due.misfit,
    control.limit,
    control.downstream,
    serving.unserved,
    serving.quiet,
    serving.busy,
    turn.locked,
    turn.behind,
    turn.alone,
    held.claimed,
    turn.transaction,
    due.misfits,
)
# Causes of which nobody knows when they end, unless their Reason has an ``until``.
OPEN = ("schedule-paused", "gate", "blocked", "in-line", "misfit", "unserved", "quiet", "locked")


def judged(facts: Facts) -> tuple[Reason, ...]:
    """Return all causes that apply, in the order of the table."""
    return tuple(reason for cause in CAUSES for reason in cause(facts))
