"""The Context for unit tests of handlers, which needs no queue."""

import logging
from pathlib import Path

import pytest

from atp.exceptions import Interrupted, InvalidGraph, NoResult
from atp.testing import Kit
from tests.app import tasks_testing as tasks
from tests.app.tasks import keyword


@pytest.fixture
def kit():
    with Kit() as kit:
        yield kit


def test_a_handler_can_be_called_with_a_test_context(kit):
    """The context keeps log messages and progress; a sleep returns at once."""
    assert keyword(kit.context(keyword), path="a.txt") == "a.txt"
    assert tasks.sleeper(kit.context()) == "awake"
    context = kit.context(attempt=2, identifier="x", collection="c", priority=3)
    context.log("one", level="WARNING")
    for done in (1, 2):
        context.progress(done, 4)
    assert context.messages == [(logging.WARNING, "one")]
    assert context.progressed == [(0.25, "1 of 4"), (0.5, "2 of 4")]
    told = context.attempt, context.identifier, context.collection, context.priority
    assert told == (2, "x", "c", 3)
    context.check()
    context.cancel()
    with pytest.raises(Interrupted):
        context.check()


def test_the_context_stores_files_and_removes_scratch(media):
    with Kit() as kit:
        context = kit.context(tasks.file)
        path = tasks.file(context)
        assert [file["name"] for file in context.published] == ["file.txt"]
    assert not Path(path).exists()


def test_the_context_returns_the_results_it_was_given(kit):
    context = kit.context(results={"scene": [1]}, undoes={"booking": 7})
    assert context.results["scene"] == [1]
    node = context.results.node("scene")
    assert (node.state, node.output) == ("FINISHED", [1])
    assert context.undoes.output["booking"] == 7
    for ask in (context.results.__getitem__, context.results.node):
        with pytest.raises(NoResult, match="'scnee'"):
            ask("scnee")
    with pytest.raises(InvalidGraph):
        context.graph()
    assert kit.context().undoes is None


@pytest.mark.django_db
def test_steps_are_kept_for_a_later_attempt(kit):
    tasks.CHARGED.clear()
    first = kit.context(tasks.steps)
    tasks.steps(first, name="a")
    later = kit.context(tasks.steps, attempt=2, kept=first.kept)
    tasks.steps(later, name="a")
    assert tasks.CHARGED == ["a"]
    assert first.kept == {"charge": 1, "write": None}
