"""The kinds of task that the feed enqueues, and how each of them can end."""

from collections.abc import Callable
from dataclasses import dataclass

from atp.states import Reason, State

FINISHED = (State.FINISHED, "")
ERROR, FATAL, STALE = (
    (State.FAILED, reason) for reason in (Reason.ERROR, Reason.FATAL, Reason.STALE)
)


@dataclass(frozen=True)
class Kind:
    """A kind of task; ``inputs(random)`` returns random arguments.

    ``ends`` are pairs of state and reason. Besides, an Instance that was hit more often than
    ``max_restarts`` ends as STALE. ``crashes(attempt)`` is True if that attempt kills its own
    worker, and ``overruns`` if every attempt exceeds its timeout. ``at_once`` is the limit of
    concurrent executions, if the Type has one.
    """

    type: str
    weight: int
    inputs: Callable
    ends: tuple = (FINISHED,)
    crashes: Callable = lambda attempt: False
    overruns: bool = False
    at_once: int | None = None

    def loses(self, attempt):
        """Return True if the handler brings about itself that this attempt is lost."""
        return self.overruns or self.crashes(attempt)


def _seconds(least, most):
    return lambda random: {"seconds": round(random.uniform(least, most), 3)}


def _sleep(random):
    seconds = round(0.05 * 100 ** random.random(), 3)
    return {"seconds": seconds, "stubborn": random.random() < 0.3}


def _long_sleep(random):
    return {"seconds": round(random.uniform(12, 22), 3), "stubborn": True}


def _failures(random):
    return {"failures": random.randint(1, 3)} | _seconds(0, 0.4)(random)


def _crash(random):
    return {"how": random.choice(("exit", "SIGKILL", "SIGSEGV", "SIGABRT"))}


KINDS = (
    Kind("chaos.short", 30, lambda random: {"large": random.random() < 0.1}),
    Kind("chaos.sleep", 26, _sleep),
    Kind("chaos.compute", 5, _seconds(0.05, 0.5)),
    Kind("chaos.retry", 8, _failures),
    Kind("chaos.fail", 4, _seconds(0, 0.4), ends=(ERROR,)),
    Kind("chaos.fatal", 4, _seconds(0, 0.4), ends=(FATAL,)),
    Kind("chaos.talk", 10, _seconds(0.1, 1.5)),
    Kind("chaos.family", 7, _seconds(0.3, 3)),
    Kind("chaos.still", 6, _seconds(0.3, 4)),
    Kind("chaos.alone", 5, _seconds(0.02, 0.3), at_once=1),
    # Its connection may be cut off once too often.
    Kind("chaos.row", 4, _seconds(0.05, 0.5), ends=(FINISHED, ERROR)),
    Kind("chaos.crash_once", 3, _crash, crashes=lambda attempt: attempt == 1),
    Kind("chaos.crash", 1, _crash, ends=(STALE,), crashes=lambda attempt: True),
    Kind("chaos.overrun", 1, lambda random: {}, ends=(STALE,), overruns=True),
    Kind("chaos.beside", 20, _seconds(0.05, 2)),
    Kind("chaos.beside_crash", 1, _crash, ends=(STALE,), crashes=lambda attempt: True),
    Kind("chaos.beside_block", 1, lambda random: {}, ends=(STALE,), overruns=True),
)
# Longer than a lease: who does not see its end is still at work when others begin.
LONG = Kind("chaos.sleep", 2, _long_sleep)
# Types whose handlers are stopped, with all that they have started, to pause them.
STOPPABLE = frozenset({"chaos.still"})
# The transactional one, of which each FINISHED Instance leaves one row.
ROW = "chaos.row"
BY_TYPE = {kind.type: kind for kind in KINDS}


def limited():
    """Return the kinds that have a limit of concurrent executions."""
    return [kind for kind in KINDS if kind.at_once is not None]


def choose(random, *, with_long):
    """Return a random kind by weight; the kind LONG is included only if ``with_long`` is True."""
    kinds = (*KINDS, LONG) if with_long else KINDS
    return random.choices(kinds, [kind.weight for kind in kinds])[0]
