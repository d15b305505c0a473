"""Fixtures of the demo's tests."""

import pytest


@pytest.fixture(scope="module")
def tasks():
    """The demo's Types."""
    from demo_project import tasks

    return tasks
