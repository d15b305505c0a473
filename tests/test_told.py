"""What is told of gates and limits."""

from datetime import UTC, datetime

import pytest

from atp.models import Gate, Limit, Type
from atp.words import sentences

SINCE = datetime(2030, 1, 31, 18, tzinfo=UTC)
ECHO = Type(identifier="tests.echo")


def gate(mode="hold", type=None, collection=None, **columns):
    return Gate(mode=mode, type=type, collection=collection, since=SINCE, **columns)


def test_how_a_gate_is():
    shut = gate("drop", who="ann", until=SINCE, reason="spam")
    assert sentences.state_of(shut, sentences.in_utc) == (
        "dropped by ann, since 2030-01-31 18:00:00 UTC, until 2030-01-31 18:00:00 UTC: spam"
    )
    assert sentences.state_of(None) == "open"


@pytest.mark.parametrize(
    ("mode", "place", "shut", "expected"),
    [
        ("open", ("tests.echo", "a"), [gate()], "Nothing moves there yet: everything is held"),
        ("open", ("tests.echo", "a"), [gate(type=ECHO)], "Nothing moves there yet: tests.echo is"),
        ("open", ("tests.echo", None), [gate("drop")], "everything is dropped"),
        ("hold", ("tests.echo", "a"), [gate("drop", type=ECHO)], "still fail: tests.echo"),
    ],
)
def test_what_shuts_a_place_besides(mode, place, shut, expected):
    assert expected in sentences.of_gate(mode, *place, gate(), shut)


@pytest.mark.parametrize(
    ("mode", "place", "shut"),
    [
        ("open", ("tests.echo", "a"), [gate(type=ECHO, collection="b")]),
        ("open", ("tests.add", "a"), [gate(type=ECHO)]),
        ("open", ("tests.echo", None), [gate(type=ECHO, collection="a")]),
        ("open", (None, None), [gate(type=ECHO)]),
        ("hold", ("tests.echo", "a"), [gate()]),
        ("drop", ("tests.echo", "a"), [gate()]),
    ],
)
def test_what_does_not(mode, place, shut):
    assert sentences.above(*place, shut) == [] or mode != "open"
    sentence = sentences.of_gate(mode, *place, None if mode != "open" else gate(), shut)
    assert "yet" not in sentence
    assert "still fail" not in sentence


def test_limits():
    limit = Limit(max_running=3, rate="5/s", burst=2, weight=2)
    assert sentences.of_limits(limit) == "3 at a time; 5/s, 2 at once; weight 2"
    assert sentences.of_limits(Limit()) == sentences.of_limits(None) == "nothing is limited"
