"""Tests of :mod:`atp.authoring.retrying`."""

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from atp.authoring.retrying import retry_delay

SECOND = timedelta(seconds=1)


class Bound:
    """Draws one of the bounds of the range, by its index."""

    def __init__(self, index):
        self._index = index

    def uniform(self, *bounds):
        return bounds[self._index]


def test_it_doubles_up_to_the_maximum():
    for retry, seconds in ((1, 5), (2, 10), (3, 20), (5, 60), (9, 60)):
        found = retry_delay(retry, first=5 * SECOND, maximum=60 * SECOND, rng=Bound(1))
        assert found == seconds * SECOND
    assert retry_delay(3, first=5 * SECOND, maximum=60 * SECOND, rng=Bound(0)) == 10 * SECOND
    assert retry_delay(5, first=timedelta(0), maximum=60 * SECOND) == timedelta(0)


def test_what_failed_together_does_not_come_back_together():
    rng = random.Random(1)
    found = {retry_delay(3, first=5 * SECOND, maximum=60 * SECOND, rng=rng) for _ in range(100)}
    assert len(found) == 100


@given(
    retry=st.integers(1, 10**6),
    first=st.timedeltas(timedelta(0), timedelta(days=3650)),
    maximum=st.timedeltas(timedelta(0), timedelta(days=3650)),
)
def test_it_is_never_negative_and_never_above_the_maximum(retry, first, maximum):
    found = retry_delay(retry, first=first, maximum=maximum)
    assert timedelta(0) <= found <= maximum
