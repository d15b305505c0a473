"""What is enqueued, as a test asks for it; and what a failed assertion tells."""

from datetime import timedelta
from decimal import Decimal
from unittest.mock import ANY

import pytest
from django.utils import timezone

from atp import Graph
from atp.exceptions import InvalidInputs, InvalidOption, UnknownType
from tests.app.tasks import add, echo, keyword
from tests.app.tasks_testing import chain, group, typed

pytestmark = pytest.mark.django_db


@pytest.fixture
def told(atp):
    """Return what a failed assertion tells."""

    def told(*args, **given):
        with pytest.raises(AssertionError) as raised:
            atp.assert_enqueued(*args, **given)
        return str(raised.value)

    return told


def test_it_returns_what_it_has_found(atp):
    """Also what has ended."""
    made = keyword.enqueue(path="a.txt")
    atp.drain()
    assert atp.assert_enqueued(keyword, path="a.txt") == made
    assert atp.assert_enqueued("tests.keyword") == made
    assert atp.enqueued(keyword, path="b.txt") == []
    assert [row.inputs.value for row in atp.enqueued(keyword)] == [{"path": "a.txt"}]


def test_options_are_told_from_arguments(atp):
    """Those of using() count, too, and the defaults of the handler."""
    keyword.using(priority=7, identifier="x", timeout=5).enqueue(path="a.txt")
    atp.assert_enqueued(keyword, path="a.txt", priority=7, identifier="x", timeout=5)
    atp.assert_enqueued(keyword, collection="books", max_retries=None, scale=1.0)
    atp.refute_enqueued(keyword, priority=5)
    atp.refute_enqueued(keyword, scale=2.0)
    atp.refute_enqueued(keyword.using(priority=9), path="a.txt")
    keyword.using(priority=9, collection="zz").enqueue(path="b.txt")
    atp.assert_enqueued(keyword.using(priority=9), path="b.txt", collection="zz")


def test_arguments_by_position(atp):
    add.enqueue(1, 2, 3)
    atp.assert_enqueued(add, 1, 2, 3)
    add.enqueue(1, 2, (3, 4))
    atp.assert_enqueued(add, 1, 2, (3, 4))
    atp.assert_enqueued(add, 1, 2, ANY)
    atp.assert_enqueued(add, first=1, second=2)
    atp.refute_enqueued(add, 1, 3)


def test_values_are_compared_as_the_queue_carries_them(atp):
    typed.enqueue(values=(1, Decimal("1.5")), when=timedelta(1))
    atp.assert_enqueued(typed, values=(1, Decimal("1.5")), when=timedelta(1))
    atp.refute_enqueued(typed, values=object())


def test_times_are_points_or_delays(atp):
    at = timezone.now() + timedelta(hours=3)
    group.using(run_after=timedelta(hours=1)).enqueue(name="a")
    group.using(run_after=at, start_before=at + timedelta(1)).enqueue(name="b")
    atp.assert_enqueued(group, name="a", run_after=timedelta(hours=1))
    atp.refute_enqueued(group, name="a", run_after=timedelta(hours=2))
    atp.assert_enqueued(group, name="b", run_after=at, start_before=at + timedelta(1))
    atp.refute_enqueued(group, name="a", run_after=None)
    # What a node waits for is no time.
    with Graph() as graph:
        first = graph.add(chain, left=0)
        graph.add(chain, left=1, after=first)
    atp.assert_enqueued(chain, left=1, run_after=None)


def test_the_nearest_are_shown_argument_by_argument(told):
    keyword.enqueue(path="b.txt")
    keyword.using(priority=9).enqueue(path="c.txt", scale=2.0)
    message = told(keyword, path="a.txt", scale=1.0, priority=9)
    assert "tests.keyword(path='a.txt', scale=1.0, priority=9) is not enqueued" in message
    first, second = message.index("path='b.txt', expected 'a.txt'"), message.index("path='c.txt'")
    assert first < message.index("priority=5, expected 9") < second
    assert "scale=2.0, expected 1.0" in message


def test_where_nothing_is_of_the_type_it_tells_what_there_is(told):
    assert "Enqueued: nothing." in told(keyword)
    echo.enqueue(a=1)
    assert "Enqueued: 1 × tests.echo" in told(keyword)


def test_a_refuted_one_is_shown(atp):
    echo.enqueue(a=1)
    with pytest.raises(
        AssertionError, match=r"tests\.echo\(a=1\) is enqueued, 1 times:.*\n.*'a': 1"
    ):
        atp.refute_enqueued(echo, a=1)


def test_what_cannot_be_is_an_error_and_no_answer(atp):
    for ask in (atp.assert_enqueued, atp.refute_enqueued, atp.enqueued):
        with pytest.raises(UnknownType, match=r"Did you mean 'tests.keyword'"):
            ask("tests.keywrod")
        with pytest.raises(InvalidInputs, match=r"no argument 'paht'.*Did you mean 'path'"):
            ask(keyword, paht="a.txt")
        with pytest.raises(InvalidInputs, match="too many positional"):
            ask(keyword, "a.txt")
        with pytest.raises(InvalidOption, match="priority=101"):
            ask(keyword, priority=101)
        with pytest.raises(InvalidOption, match="run_after"):
            ask(keyword, run_after="5")


def test_an_argument_that_is_called_as_an_option():
    def handler(context, *, priority):
        """Have a priority of its own."""

    from atp.authoring.task_type import TaskType
    from atp.testing.kit import split_arguments

    made = TaskType(handler=handler, identifier="kit.priority")
    with pytest.raises(InvalidInputs, match=r"give the arguments as inputs=\{…\}"):
        split_arguments(made, (), {"priority": 1}, ("priority", "inputs"))
    both = split_arguments(
        made, (), {"inputs": {"priority": 1}, "priority": 5}, ("priority", "inputs")
    )
    assert both == ({"priority": 1}, {"priority": 5})
