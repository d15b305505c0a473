"""Tests of enqueueing: options, batches, and the caller's transaction."""

from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from atp import Graph, queue
from atp.exceptions import DuplicateIdentifier, IllegalTransition, InvalidInputs, InvalidOption
from atp.models import Inputs, Instance, Task
from atp.store import get_store

from .app.tasks import add, echo, keyword

pytestmark = pytest.mark.django_db


def test_enqueue_options_are_stored_on_the_instance():
    before = get_store().now()
    later = before + timedelta(hours=1)
    facts = {"priority": -3, "collection": "esa", "identifier": "S2A-42", "created_by": "ann"}
    one = add.using(**facts, run_after=timedelta(hours=1)).enqueue(1)
    assert Instance.objects.filter(pk=one.pk, **facts).exists()
    due = Task.objects.get(pk=one.pk).due_at
    assert timedelta(hours=1) <= due - before < timedelta(hours=1, minutes=1)
    late = later + timedelta(hours=1)
    one = echo.using(run_after=later, start_before=late).enqueue()
    assert (one.task.due_at, one.start_before) == (later, late)
    one = echo.using(run_after=60, start_before=90.5).enqueue()
    assert timedelta(seconds=60) <= one.task.due_at - before < timedelta(seconds=70)
    assert timedelta(seconds=90) <= one.start_before - before < timedelta(seconds=101)


def test_enqueue_many_keeps_the_order():
    made = keyword.enqueue_many({"path": str(n)} for n in range(10))
    assert {(one.priority, one.collection) for one in made} == {(5, "books")}
    values = [Inputs.objects.get(instance=one).value["path"] for one in made]
    assert values == [str(n) for n in range(10)]
    made = add.enqueue_many([(1, 2, 3), (2,)], identifiers=["a", None])
    assert [one.identifier for one in made] == ["a", None]
    assert Inputs.objects.get(instance=made[0]).value == {"*": [1, 2, 3]}
    assert add.enqueue_many([]) == queue.enqueue_calls([]) == []


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    """G7: an enqueue is part of the caller's transaction."""

    def test_enqueue_commits_or_rolls_back_with_the_callers_own_rows(self, django_user_model, host):
        for rolled_back in (True, False):
            with transaction.atomic():
                django_user_model.objects.create(username="ann")
                echo.enqueue()
                transaction.set_rollback(rolled_back)
            assert django_user_model.objects.exists() is not rolled_back
            assert Instance.objects.exists() is not rolled_back
            assert bool(host.claim()) is not rolled_back

    def test_rolled_back_savepoint_removes_only_its_own_enqueues(self):
        with transaction.atomic():
            kept = echo.enqueue()
            with transaction.atomic():
                echo.using(identifier="a").enqueue()
                transaction.set_rollback(True)
            again = echo.using(identifier="a").enqueue()
            # A refused enqueue does not undo the rest of the transaction.
            with pytest.raises(DuplicateIdentifier):
                echo.using(identifier="a").enqueue()
        assert list(Instance.objects.all()) == [kept, again]


def call(task_type, *args, **kwargs):
    return queue.Call(task_type=task_type, args=args, kwargs=kwargs)


def test_calls_of_several_types_with_their_own_options_are_enqueued_together():
    first, second = call(echo.using(identifier="a"), x=1), call(add.using(priority=7), 1, 2)
    made = queue.enqueue_calls([first, second, call(echo.using(collection="books"), x=2)])
    one, two, three = made
    assert Inputs.objects.get(instance=two).value == {"first": 1, "second": 2}
    assert [each.type.identifier for each in made] == ["tests.echo", "tests.add", "tests.echo"]
    assert (one.identifier, two.priority, three.collection) == ("a", 7, "books")
    assert one.pk < three.pk


def test_batch_of_calls_is_refused_as_a_whole_if_one_of_them_is_invalid():
    """G13: one invalid call refuses the whole batch, and the error has the index of this call."""
    echo.using(identifier="taken").enqueue()
    calls = [call(add, 1), call(echo.using(identifier="taken"))]
    with pytest.raises(DuplicateIdentifier):
        queue.enqueue_calls(calls)
    with pytest.raises(InvalidInputs) as caught:
        queue.enqueue_calls([call(echo), call(add)])
    assert caught.value.call == 1
    # The error names the row that is invalid.
    rows = [{"first": 1}] * 5 + [{"frist": 1}]
    with pytest.raises(InvalidInputs, match=r"Row 5, counted from 0: .*frist") as caught:
        add.enqueue_many(rows)
    assert (caught.value.argument, caught.value.call) == ("frist", 5)
    with pytest.raises(InvalidInputs, match=r"Row 1, counted from 0: .*not 'text'"):
        add.enqueue_many([[1], "text"])
    assert Instance.objects.count() == 1


def test_node_can_be_redriven_by_enqueue_only_with_its_failed_upstream():
    """A node that waits for a FAILED node cannot be redriven alone."""
    with Graph() as g:
        first = g.add(echo.using(identifier="a"), name="a")
        g.add(echo.using(identifier="b"), name="b", after=first)
    g.cancel()
    failed = echo.using(existing="redrive")
    with pytest.raises(IllegalTransition, match="waits for a FAILED one"):
        failed.using(identifier="b").enqueue()
    made = failed.enqueue_many([{}, {}], identifiers=["b", "a"])
    assert [row.state for row in made] == ["ACCEPTED", "ACCEPTED"]


def test_option_existing_is_refused_without_an_identifier():
    """G13: without an identifier, ``existing`` would have no effect."""
    made = echo.using(identifier="a", existing="return")
    first, again = made.enqueue(), made.enqueue(other=1)
    assert (first.is_new, again.is_new, again) == (True, False, first)
    for existing in ("return", "redrive"):
        type = echo.using(existing=existing)
        for enqueue in (type.enqueue, partial(type.enqueue_many, [{}])):
            with pytest.raises(InvalidOption, match=f"existing='{existing}' .* give one"):
                enqueue()
        assert type.enqueue_many([{}], identifiers=[existing])[0].is_new
