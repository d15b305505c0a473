"""Tests of :mod:`atp.words.uuids`."""

import time

from atp.words.uuids import uuid7


def test_it_is_a_version_7_uuid():
    made = uuid7()
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"


def test_it_carries_the_time_in_milliseconds():
    before = time.time_ns() // 1_000_000
    made = uuid7()
    after = time.time_ns() // 1_000_000
    assert before <= made.int >> 80 <= after


def test_it_is_ordered_by_time(monkeypatch):
    clock = iter(range(10**18, 10**18 + 50 * 10**6, 10**6))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    made = [uuid7() for _ in range(50)]
    assert made == sorted(made)


def test_it_cannot_be_guessed_within_a_millisecond(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    made = {uuid7() for _ in range(1000)}
    assert len(made) == 1000
