"""Fault points: an attempt is lost between two steps."""

import pytest
from django.contrib.auth.models import Group

from atp.exceptions import InvalidOption
from atp.testing import Fault
from tests.app import tasks_testing as tasks

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def charged():
    tasks.CHARGED.clear()
    return tasks.CHARGED


@pytest.mark.parametrize(
    ("point", "calls", "groups"),
    [
        ("before charge", 1, 0),
        ("in charge", 2, 0),
        ("after charge", 1, 0),
        ("before write", 1, 0),
        ("in write", 1, 0),
        ("after write", 1, 1),
    ],
)
def test_a_step_is_done_once_if_its_result_was_kept(atp, charged, point, calls, groups):
    """G17: a step in a transaction is done exactly once."""
    tasks.steps.enqueue(name="a")
    [lost] = atp.drain(lose=Fault(point))
    assert (lost.state, lost.attempt) == ("ACCEPTED", 1)
    assert Group.objects.count() == groups
    [run] = atp.drain()
    assert (run.state, run.attempt, run.instance.restarts) == ("FINISHED", 2, 1)
    assert len(charged) == calls
    assert Group.objects.count() == 1


def test_a_fault_point_that_nothing_comes_to_is_told(atp):
    tasks.steps.enqueue(name="a")
    with pytest.raises(AssertionError, match=r"'after chrage'\. Steps: charge, write\."):
        atp.drain(lose=Fault("after chrage"))


@pytest.mark.parametrize("point", ["charge", "after", "beside charge", ""])
def test_a_fault_point_is_checked(point):
    with pytest.raises(InvalidOption, match="say 'before', 'in' or 'after'"):
        Fault(point)


def test_the_arguments_of_a_drain_are_checked(atp):
    with pytest.raises(InvalidOption, match="lose='middle'"):
        atp.drain(lose="middle")
    with pytest.raises(InvalidOption, match="leave out lose="):
        atp.drain(twice=True, lose="after")
