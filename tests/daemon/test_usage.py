"""What the workers of a daemon did, as the daemon measures it and writes it to Usage."""

import time

import pytest

from atp import queue
from atp.models import Span, Usage
from atp.reports import statistics
from tests.app import tasks_daemon as types

from . import inside

# So short that the row of their daemon often says that no worker is busy.
SECONDS, TASKS = 0.005, 600


@pytest.mark.slow
def test_daemon_that_ends_has_written_for_how_long_its_attempts_ran(atpd):
    """On a quiet machine these are more than 90 % of its capacity."""
    queue.register(types.rest)
    types.rest.enqueue_many([{"seconds": SECONDS}] * TASKS)
    began = time.monotonic()
    daemon = atpd("--drain", processes=2)
    assert daemon.wait() == 0
    lifetime = time.monotonic() - began
    rows = list(Usage.objects.all())
    assert {(row.span, row.name) for row in rows} == {
        (Span.MINUTE, f"{inside.hostname()}:{daemon.pid}")
    }
    assert sum(row.ended for row in rows) == TASKS
    busy, capacity = (
        sum(getattr(row, name) for row in rows) for name in ("busy_us", "capacity_us")
    )
    run_time = statistics.sums()["daemon.rest"].counts["wall_us"]
    assert busy == pytest.approx(run_time, rel=0.01)
    assert TASKS * SECONDS * 1e6 <= busy <= capacity <= 2e6 * lifetime
    assert max(row.memory for row in rows) > 2**20
