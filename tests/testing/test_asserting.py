"""``assert_enqueued`` and its variants, and their messages when they fail."""

from datetime import timedelta
from decimal import Decimal
from unittest.mock import ANY

import pytest
from django.utils import timezone

from atp import Graph, task_type
from atp.exceptions import InvalidInputs, InvalidOption, UnknownType
from tests.app.tasks import add, echo, keyword
from tests.app.tasks_testing import chain, group, typed

pytestmark = pytest.mark.django_db


def told(ask, *args, **given):
    with pytest.raises(AssertionError) as raised:
        ask(*args, **given)
    return str(raised.value)


def test_assert_enqueued_returns_the_instance_that_it_found(atp):
    """Instances that have ended are found too."""
    made = keyword.enqueue(path="a.txt")
    atp.drain()
    assert atp.assert_enqueued(keyword, path="a.txt") == made
    assert atp.assert_enqueued("tests.keyword") == made
    assert atp.enqueued(keyword, path="b.txt") == []
    assert [row.inputs.value for row in atp.enqueued(keyword)] == [{"path": "a.txt"}]


def test_assert_enqueued_distinguishes_options_from_arguments(atp):
    """Options from ``using()`` and default arguments of the handler are compared too."""
    keyword.using(priority=7, identifier="x", timeout=5).enqueue(path="a.txt")
    atp.assert_enqueued(keyword, path="a.txt", priority=7, identifier="x", timeout=5)
    atp.assert_enqueued(keyword, collection="books", max_retries=None, scale=1.0)
    atp.refute_enqueued(keyword, priority=5)
    atp.refute_enqueued(keyword, scale=2.0)
    atp.refute_enqueued(keyword.using(priority=9), path="a.txt")
    keyword.using(priority=9, collection="zz").enqueue(path="b.txt")
    atp.assert_enqueued(keyword.using(priority=9), path="b.txt", collection="zz")


def test_assert_enqueued_compares_arguments_as_the_queue_stores_them(atp):
    add.enqueue(1, 2, 3)
    atp.assert_enqueued(add, 1, 2, 3)
    add.enqueue(1, 2, (3, 4))
    atp.assert_enqueued(add, 1, 2, (3, 4))
    atp.assert_enqueued(add, 1, 2, ANY)
    atp.assert_enqueued(add, first=1, second=2)
    atp.refute_enqueued(add, 1, 3)
    typed.enqueue(values=(1, Decimal("1.5")), when=timedelta(1))
    atp.assert_enqueued(typed, values=(1, Decimal("1.5")), when=timedelta(1))
    atp.refute_enqueued(typed, values=object())


def test_assert_enqueued_accepts_times_and_delays(atp):
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


def test_a_failed_assertion_lists_the_nearest_matches_first(atp):
    """Without a match it lists the Types that are enqueued."""
    assert "Enqueued: nothing." in told(atp.assert_enqueued, keyword)
    echo.enqueue(a=1)
    assert "Enqueued: 1 × tests.echo" in told(atp.assert_enqueued, keyword)
    message = told(atp.refute_enqueued, echo, a=1)
    assert "tests.echo(a=1) is enqueued. Matching Instances: 1" in message
    assert "'a': 1" in message
    keyword.enqueue(path="b.txt")
    keyword.using(priority=9).enqueue(path="c.txt", scale=2.0)
    message = told(atp.assert_enqueued, keyword, path="a.txt", scale=1.0, priority=9)
    assert "tests.keyword(path='a.txt', scale=1.0, priority=9) is not enqueued" in message
    first, second = message.index("path='b.txt', expected 'a.txt'"), message.index("path='c.txt'")
    assert first < message.index("priority=5, expected 9") < second
    assert "scale=2.0, expected 1.0" in message


def test_assertions_reject_unknown_types_arguments_and_options(atp):
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
        with pytest.raises(InvalidInputs, match="by name"):
            ask(group, inputs=[1])
        with pytest.raises(InvalidInputs, match="no argument 'on_finished'"):
            ask(group, on_finished=group)


@pytest.mark.usefixtures("own_types")
def test_an_argument_named_like_an_option_is_passed_in_inputs(atp):
    @task_type("kit.priority")
    def made(context, *, priority):
        """Take an argument that has the name of an option."""

    with pytest.raises(InvalidInputs, match=r"Pass the handler's arguments as inputs=\{…\}"):
        atp.enqueued(made, priority=1)
    made.using(priority=5).enqueue(priority=1)
    atp.assert_enqueued(made, inputs={"priority": 1}, priority=5)
    atp.refute_enqueued(made, inputs={"priority": 5}, priority=1)
