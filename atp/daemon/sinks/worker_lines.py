"""The lines that ATP itself logs in a worker: the project's handlers harm no attempt with them."""

from contextlib import contextmanager

from ..shared.running_page import NEVER
from ..system.processes import uptime
from .bounded import Bounded


def guard_own_lines(page, slot, interruption):
    """Guard all that this worker logs, but for what a handler logs itself while it runs."""

    @contextmanager
    def time_out(longest):
        """Keep the time that log handlers take from the time of the attempt."""
        running = page.read(slot)
        if running is None or running.deadline == NEVER:
            yield
            return
        began = uptime()
        page.put_off(slot, max(running.deadline, began + longest))
        try:
            yield
        finally:
            page.put_off(slot, running.deadline + uptime() - began)

    Bounded(lambda: interruption.is_inside, time_out).start()
