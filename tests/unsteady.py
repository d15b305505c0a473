"""Tests that fail, once or always, for :mod:`tests.test_run`; no other run finds them."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .helpers import wait_for


def test_it_passes():
    pass


def test_it_fails_once():
    seen = Path(os.environ["ATP_TEST_UNSTEADY"])
    was_there = seen.exists()
    seen.touch()
    assert was_there, "the first time"


def test_it_fails_always():
    raise AssertionError("each time")


@pytest.fixture
def before():
    return datetime.now(UTC)


def test_it_sees_a_year_end(before):
    assert before.year == 2031
    assert datetime.now(UTC).year == 2031
    wait_for(lambda: datetime.now(UTC).year == 2032, what="the year 2032")
