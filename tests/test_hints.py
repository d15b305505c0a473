"""Tests of :mod:`atp.words.hints`."""

from datetime import timedelta

from atp.words.hints import did_you_mean, seconds


def test_seconds():
    assert seconds(None) is None
    assert seconds(1.5) == timedelta(seconds=1.5)
    assert seconds(timedelta(days=1)) == timedelta(days=1)


def test_did_you_mean():
    assert did_you_mean("prioriti", ["priority", "collection"]) == " Did you mean 'priority'?"
    assert did_you_mean("PRIORITY", ["priority"]) == " Did you mean 'priority'?"
    assert did_you_mean("xyz", ["priority"]) == ""
    assert did_you_mean("x", []) == ""
