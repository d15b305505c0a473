"""Protection of attempts from the project's log handlers when ATP itself logs in a worker."""

from functools import partial

from .bounded import Bounded


def guard_own_lines(page, slot, interruption):
    """Guard the lines that this worker logs, except those of the task's own handler.

    The attempt's deadline is extended by the time that the log handlers take.
    """
    Bounded(lambda: interruption.is_inside, partial(page.unhurried, slot)).start()
