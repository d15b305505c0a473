"""The judge of lines, held against records made by hand (G17)."""

import pytest

from atp import queue
from atp.models import Instance

from .lines import LINES, broken_lines, create_line
from .record import Line, executions
from .slots import SECOND

QUEUE, CANCEL = LINES[1], LINES[3]


@pytest.fixture
def run(world, tmp_path):
    """Backfill three slots of a schedule; returns the Instances in their order."""

    def make(name):
        queue.register_all()
        first = create_line(name, tmp_path / "record")
        queue.backfill_schedule(name, first - 4 * SECOND, first - 2 * SECOND)
        return list(Instance.objects.order_by("pk"))

    return make


def record(*entries):
    """Each entry: the Instance, and when it has begun and ended."""
    lines = []
    for row, begin, end in entries:
        for event, time in (("start", begin), ("end", end)):
            given = {"event": event, "time": time, "instance": str(row.uuid)}
            lines.append(Line(place=len(lines), attempt=1, pid=1, **given))
    return executions(lines)


def test_one_after_the_other(run):
    a, b, c = run(QUEUE)
    assert list(broken_lines(QUEUE, record((a, 1, 2), (b, 2, 3), (c, 4, 5)))) == []


def test_one_too_early(run):
    a, b, _ = run(QUEUE)
    [words] = broken_lines(QUEUE, record((a, 1, 2), (b, 1.5, 3)))
    assert "began 0.500 s before the end" in words


def test_one_in_the_wrong_order(run):
    a, b, _ = run(QUEUE)
    [words] = broken_lines(QUEUE, record((a, 4, 5), (b, 2, 3)))
    assert "before the end" in words


def test_one_that_was_not_cancelled(run):
    rows = run(CANCEL)
    queue.cancel(rows[1])
    [words] = broken_lines(CANCEL, {})
    assert "was to be cancelled, and is ACCEPTED" in words
    queue.cancel(rows[0])
    assert list(broken_lines(CANCEL, {})) == []
