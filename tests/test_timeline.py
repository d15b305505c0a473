"""What has become of an Instance, as spans and attempts in time."""

from datetime import timedelta
from itertools import pairwise

import pytest

from atp import queue
from atp.reports import documents, timeline
from atp.states import Event, Reason, State
from atp.templatetags.atp import drawn
from tests.app.tasks import echo

from .populated import Populated, world_in


@pytest.fixture
def made(db, tmp_path):
    with world_in(tmp_path) as world:
        yield Populated(world, world.host("tests.echo"))


def test_what_was_cancelled_while_it_waited_for_another_attempt_took_no_time(made):
    """Its start is that of an attempt that ended long before."""
    instance, move = made.claimed()
    move(Event.START)
    move(Event.RETRY)
    queue.cancel(instance)
    instance.refresh_from_db()
    assert (instance.reason, instance.started is None) == (Reason.CANCELLED, False)
    now = instance.finished + timedelta(hours=2)
    assert timeline.attempt_duration(documents.instance(instance), now) is None


def test_an_attempt_from_its_claim_to_its_end(made, monkeypatch):
    waiting = timeline.timeline(echo.enqueue())
    assert [(span.state, span.end) for span in waiting.spans] == [(State.ACCEPTED, None)]
    assert (waiting.attempts, waiting.is_whole) == ((), True)
    instance, move = made.claimed()
    for event in (Event.START, Event.PAUSE, Event.RESUME, Event.FINISH):
        move(event)
    instance.refresh_from_db()
    line = timeline.timeline(instance)
    [attempt] = line.attempts
    assert (attempt.number, attempt.event, attempt.state) == (1, Event.FINISH, State.FINISHED)
    [pause] = [span for span in line.spans if span.state == State.PAUSED]
    assert attempt.ran == attempt.ended - attempt.started - (pause.end - pause.begin)
    assert attempt.who.startswith("host:")
    states = [span.state for span in line.spans]
    assert states == ["ACCEPTED", "SCHEDULED", "RUNNING", "PAUSED", "RUNNING"]
    assert all(before.end == after.begin for before, after in pairwise(line.spans))
    # A long history is cut at its beginning; then its claim is not there.
    monkeypatch.setattr(timeline, "MOST", 3)
    line = timeline.timeline(instance)
    assert (line.is_whole, line.attempts) == (False, ())
    assert [span.state for span in line.spans] == ["PAUSED", "RUNNING"]


def test_a_redrive_is_between_two_attempts(made):
    failed = made.failed(Reason.FATAL)
    queue.redrive(failed)
    [case] = made.host.claim(limit=1)
    assert case.attempt == 2
    first, second = timeline.timeline(failed).attempts
    assert (first.number, first.event, second.number, second.ended) == (1, "fail", 2, None)
    assert "ValueError" in first.message


def test_it_is_drawn_to_scale(made):
    instance, move = made.claimed()
    move(Event.START)
    line = timeline.timeline(instance)
    drawing = drawn(line, line.spans[0].begin + timedelta(seconds=100))
    bars = drawing["bars"]
    assert [bar["state"] for bar in bars] == ["ACCEPTED", "SCHEDULED", "RUNNING"]
    assert all(bar["width"] >= 3 and bar["x"] >= 0 for bar in bars)
    assert bars[-1]["x"] + bars[-1]["width"] <= drawing["width"]
    assert bars[-1]["width"] > 900
    assert drawing["whole"] == timedelta(seconds=100)
