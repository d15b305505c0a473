"""``queue.change``: what may be asked for."""

from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.exceptions import IllegalTransition, InvalidOption, UnknownInstance
from atp.models import Instance
from atp.states import State

from .app.tasks import echo

HOUR = timedelta(hours=1)


def test_what_is_given(world):
    instance = echo.enqueue()
    due = datetime(2100, 1, 1, tzinfo=UTC)
    queue.change(instance, priority=5, collection="books", due=due, by="ann")
    assert (instance.priority, instance.collection) == (5, "books")
    assert queue.task(instance).due_at == due
    assert instance.log.last().who == "ann"
    queue.change(instance, due=timedelta())
    assert queue.task(instance).due_at <= world.store.now()


def test_what_is_wrong_is_told_and_nothing_is_written(world):
    """G13."""
    instance = echo.enqueue()
    before = world.snapshot()
    for what, told in (
        ({}, "Nothing to change"),
        ({"priority": 101}, "from -100 to 100"),
        ({"priority": True}, "whole number"),
        ({"collection": "a\nb"}, "printable"),
        ({"collection": "x" * 201}, "200 are allowed"),
        ({"collection": 7}, "must be text"),
        ({"due": "tomorrow"}, "datetime"),
        ({"due": datetime(2030, 1, 1)}, "no time zone"),
        ({"due": timedelta.max}, "calendar"),
        ({"due": timedelta(-1)}, "0 or more from now"),
        ({"due": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}, "due=9999-12-31T23:59:59"),
        ({"priority": 3, "by": 5}, "by=5"),
        ({"due": HOUR, "postpone": HOUR}, "either"),
        ({"postpone": -HOUR}, "from 0"),
        ({"postpone": 3600}, "timedelta"),
        ({"postpone": timedelta(days=4000)}, "from 0"),
    ):
        with pytest.raises(InvalidOption, match=told):
            queue.change(instance, **what)
    kept = Instance(pk=2**40, uuid=instance.uuid, type=instance.type, state=State.ACCEPTED)
    with pytest.raises(UnknownInstance):
        queue.change(kept, priority=1)
    assert world.snapshot() == before


def test_what_does_not_wait_is_refused_with_its_state(world, host):
    """G6, G13: the others are changed."""
    running, waiting = echo.using(priority=9).enqueue(), echo.enqueue()
    host.claim(1)
    with pytest.raises(IllegalTransition, match="it is SCHEDULED, not ACCEPTED") as caught:
        queue.change(running, waiting, collection="a")
    assert caught.value.state == State.SCHEDULED
    assert (running.collection, waiting.collection) == ("", "a")
    queue.cancel(waiting)
    with pytest.raises(IllegalTransition, match=r"it is FAILED \(CANCELLED\), not ACCEPTED"):
        queue.change(waiting, priority=1)


def test_by_its_uuid(world):
    """As get() takes it; what is no Instance is a named error (G13)."""
    one, other = echo.enqueue(), echo.enqueue()
    queue.change(one.uuid, str(other.uuid), priority=7)
    assert {queue.get(each.uuid).priority for each in (one, other)} == {7}
    before = world.snapshot()
    for wrong in ("nonsense", 7, None):
        with pytest.raises(UnknownInstance):
            queue.change(one, wrong, priority=8)
    assert world.snapshot() == before
