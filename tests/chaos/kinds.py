"""The kinds of task that are fed to the queue, and how each may end."""

from collections.abc import Callable
from dataclasses import dataclass

from atp.states import Reason, State


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of task. ``inputs(random)`` chooses the arguments of one.

    ``ends`` are pairs of state and reason; besides, whatever was hit more often than
    ``max_restarts`` allows ends STALE. ``crashes(attempt)`` says whether that attempt
    ends its own worker, ``overruns`` that every attempt is killed for its time-out.
    ``at_once`` is how many may execute at any time, where its Type is limited.
    """

    type: str
    weight: int
    inputs: Callable
    ends: frozenset = frozenset({(State.FINISHED, "")})
    crashes: Callable = lambda attempt: False
    overruns: bool = False
    at_once: int | None = None


_STALE = frozenset({(State.FAILED, Reason.STALE)})
_CRASHES = ("exit", "SIGKILL", "SIGSEGV", "SIGABRT")


def _seconds(least, most):
    return lambda random: {"seconds": round(random.uniform(least, most), 3)}


KINDS = (
    Kind(type="chaos.short", weight=30, inputs=lambda random: {"large": random.random() < 0.1}),
    Kind(
        type="chaos.sleep",
        weight=26,
        inputs=lambda random: {
            "seconds": round(0.05 * 100 ** random.random(), 3),
            "stubborn": random.random() < 0.3,
        },
    ),
    Kind(type="chaos.compute", weight=5, inputs=_seconds(0.05, 0.5)),
    Kind(
        type="chaos.retry",
        weight=8,
        inputs=lambda random: {"failures": random.randint(1, 3), **_seconds(0, 0.4)(random)},
    ),
    Kind(
        type="chaos.fail",
        weight=4,
        inputs=_seconds(0, 0.4),
        ends=frozenset({(State.FAILED, Reason.ERROR)}),
    ),
    Kind(
        type="chaos.fatal",
        weight=4,
        inputs=_seconds(0, 0.4),
        ends=frozenset({(State.FAILED, Reason.FATAL)}),
    ),
    Kind(type="chaos.talk", weight=10, inputs=_seconds(0.1, 1.5)),
    Kind(type="chaos.family", weight=7, inputs=_seconds(0.3, 3)),
    Kind(type="chaos.still", weight=6, inputs=_seconds(0.3, 4)),
    Kind(type="chaos.alone", weight=5, inputs=_seconds(0.02, 0.3), at_once=1),
    Kind(
        type="chaos.row",
        weight=4,
        inputs=_seconds(0.05, 0.5),
        # Its connection may be cut off once too often.
        ends=frozenset({(State.FINISHED, ""), (State.FAILED, Reason.ERROR)}),
    ),
    Kind(
        type="chaos.crash_once",
        weight=3,
        inputs=lambda random: {"how": random.choice(_CRASHES)},
        crashes=lambda attempt: attempt == 1,
    ),
    Kind(
        type="chaos.crash",
        weight=1,
        inputs=lambda random: {"how": random.choice(_CRASHES)},
        ends=_STALE,
        crashes=lambda attempt: True,
    ),
    Kind(type="chaos.overrun", weight=1, inputs=lambda random: {}, ends=_STALE, overruns=True),
)
# Longer than a lease: who does not see its end is still at work when others begin.
LONG = Kind(
    type="chaos.sleep",
    weight=2,
    inputs=lambda random: {"seconds": round(random.uniform(12, 22), 3), "stubborn": True},
)
# Types whose handlers are stopped, with all that they have started, to pause them.
STOPPABLE = frozenset({"chaos.still"})
# The transactional one, of which each FINISHED Instance leaves one row.
ROW = "chaos.row"
BY_TYPE = {kind.type: kind for kind in KINDS}


def limited():
    """Return the kinds of which only so many may execute at once."""
    return [kind for kind in KINDS if kind.at_once is not None]


def choose(random, *, with_long):
    """Return a kind, each as often as its weight says; without LONG where time is short."""
    kinds = (*KINDS, LONG) if with_long else KINDS
    return random.choices(kinds, [kind.weight for kind in kinds])[0]
