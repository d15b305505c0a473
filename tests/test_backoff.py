"""Tests of :mod:`atp.words.backoff`."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.words.backoff import delay

SECOND = timedelta(seconds=1)


class Highest:
    def uniform(self, low, high):
        return high


class Lowest:
    def uniform(self, low, high):
        return low


@pytest.mark.parametrize(("retry", "seconds"), [(1, 5), (2, 10), (3, 20), (5, 60), (9, 60)])
def test_it_doubles_up_to_the_maximum(retry, seconds):
    found = delay(retry, first=5 * SECOND, maximum=60 * SECOND, rng=Highest())
    assert found == seconds * SECOND


def test_jitter_takes_at_most_half():
    assert delay(3, first=5 * SECOND, maximum=60 * SECOND, rng=Lowest()) == 10 * SECOND


def test_what_failed_together_does_not_come_back_together():
    rng = random.Random(1)
    found = {delay(3, first=5 * SECOND, maximum=60 * SECOND, rng=rng) for _ in range(100)}
    assert len(found) == 100


def test_no_backoff_is_no_delay():
    assert delay(5, first=timedelta(0), maximum=60 * SECOND) == timedelta(0)


@given(
    retry=st.integers(1, 10**6),
    first=st.timedeltas(timedelta(0), timedelta(days=3650)),
    maximum=st.timedeltas(timedelta(0), timedelta(days=3650)),
)
def test_it_is_never_negative_and_never_above_the_maximum(retry, first, maximum):
    found = delay(retry, first=first, maximum=maximum)
    assert timedelta(0) <= found <= maximum
