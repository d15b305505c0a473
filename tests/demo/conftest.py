"""Fixtures of the demo's tests."""

import pytest

from atp import TaskType
from atp.registry import registry


@pytest.fixture(scope="module")
def tasks():
    """The demo's Types, forgotten afterwards: other tests count what is declared."""
    from demo_project import tasks

    declared = [value for value in vars(tasks).values() if isinstance(value, TaskType)]
    for task_type in declared:
        registry.add(task_type)
    yield tasks
    for task_type in declared:
        registry.remove(task_type.identifier)
