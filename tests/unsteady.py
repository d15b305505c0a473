"""Tests that fail, once or always, for :mod:`tests.test_run`; no other run finds them."""

import os
from pathlib import Path


def test_it_passes():
    pass


def test_it_fails_once():
    seen = Path(os.environ["ATP_TEST_UNSTEADY"])
    was_there = seen.exists()
    seen.touch()
    assert was_there, "the first time"


def test_it_fails_always():
    raise AssertionError("each time")
