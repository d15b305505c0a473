"""Protection of attempts from the project's log handlers when ATP itself logs in a worker."""

from contextlib import contextmanager

from ..shared.running_page import NEVER
from ..system.processes import uptime
from .bounded import Bounded


def guard_own_lines(page, slot, interruption):
    """Guard the lines that this worker logs, except those of the task's own handler."""

    @contextmanager
    def time_out(longest):
        """Extend the attempt's deadline by the time that the log handlers take."""
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
