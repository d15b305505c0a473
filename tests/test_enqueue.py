"""Tests of enqueueing: options, many at once, and the caller's transaction."""

import threading
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import TestCase

from atp import Graph, queue
from atp.exceptions import (
    DuplicateIdentifier,
    IllegalTransition,
    InvalidInputs,
    InvalidOption,
    UnknownInstance,
)
from atp.models import Inputs, Instance, Task, Type
from atp.states import State
from atp.store import get_store

from .app.tasks import add, echo, keyword
from .helpers import DEADLINE, Thread

pytestmark = pytest.mark.django_db


class TestEnqueue:
    def test_it_returns_the_instance(self):
        one = add.enqueue(1, second=2)
        assert (one.state, one.type.identifier) == (State.ACCEPTED, "tests.add")
        assert Inputs.objects.get(instance=one).value == {"first": 1, "second": 2}
        assert Task.objects.get(pk=one.pk).due_at <= get_store().now()

    def test_options_reach_the_instance(self):
        late = get_store().now() + timedelta(hours=2)
        options = {
            "priority": -3,
            "collection": "esa",
            "run_after": timedelta(hours=1),
            "start_before": late,
            "identifier": "S2A-42",
            "created_by": "ann",
        }
        before = get_store().now()
        one = Instance.objects.get(pk=add.using(**options).enqueue(1).pk)
        assert (one.priority, one.collection, one.identifier) == (-3, "esa", "S2A-42")
        assert (one.start_before, one.created_by) == (late, "ann")
        due = Task.objects.get(pk=one.pk).due_at
        assert timedelta(hours=1) <= due - before < timedelta(hours=1, minutes=1)

    def test_defaults_of_the_declaration(self):
        one = keyword.enqueue(path="x")
        assert (one.priority, one.collection) == (5, "books")

    def test_run_after_and_start_before_may_be_seconds(self, world):
        now = world.store.now()
        one = echo.using(run_after=60, start_before=90.5).enqueue()
        assert timedelta(seconds=60) <= one.task.due_at - now < timedelta(seconds=70)
        assert timedelta(seconds=90) <= one.start_before - now < timedelta(seconds=101)

    def test_run_after_may_be_a_time(self):
        later = get_store().now() + timedelta(hours=1)
        assert Task.objects.get(pk=echo.using(run_after=later).enqueue().pk).due_at == later

    def test_naive_times_are_local_where_use_tz_is_off(self, settings):
        settings.USE_TZ = False
        later = (get_store().now() + timedelta(hours=1)).replace(tzinfo=None)
        due = Task.objects.get(pk=echo.using(run_after=later).enqueue().pk).due_at
        assert due.replace(tzinfo=None) == later

    def test_existing(self):
        first = echo.using(identifier="a").enqueue()
        with pytest.raises(DuplicateIdentifier):
            echo.using(identifier="a").enqueue()
        again = echo.using(identifier="a", existing="return").enqueue(other=1)
        assert again == first
        assert Inputs.objects.get(instance=first).value == {}

    def test_the_type_is_written_when_it_is_missing(self):
        Type.objects.filter(identifier="tests.echo").delete()
        echo.enqueue()
        assert Type.objects.filter(identifier="tests.echo").exists()


class TestEnqueueMany:
    def test_in_order(self):
        made = keyword.enqueue_many({"path": str(n)} for n in range(10))
        values = [Inputs.objects.get(instance=one).value["path"] for one in made]
        assert values == [str(n) for n in range(10)]

    def test_tuples_are_positional(self):
        [one] = add.enqueue_many([(1, 2, 3)])
        assert Inputs.objects.get(instance=one).value == {"*": [1, 2, 3]}

    def test_each_has_its_own_identifier(self):
        made = add.enqueue_many([(1,), (2,)], identifiers=["a", None])
        assert [one.identifier for one in made] == ["a", None]

    def test_none_at_all(self):
        assert add.enqueue_many([]) == []


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    """G7."""

    def test_a_rolled_back_enqueue_never_runs(self, world, host):
        with transaction.atomic():
            echo.enqueue()
            transaction.set_rollback(True)
        assert not Instance.objects.exists()
        assert host.claim() == []

    def test_a_committed_one_is_seen_at_once_and_not_before(self, world, host):
        enqueued, commit = threading.Event(), threading.Event()

        def application():
            with transaction.atomic():
                one = echo.enqueue()
                enqueued.set()
                commit.wait(DEADLINE)
            return one

        writer = Thread(application)
        assert enqueued.wait(DEADLINE)
        assert not Task.objects.exists()
        commit.set()
        one = writer.result()
        assert [claimed.instance for claimed in host.claim()] == [one.pk]

    def test_it_goes_with_the_callers_own_rows(self, django_user_model):
        for rolled_back in (True, False):
            with transaction.atomic():
                django_user_model.objects.create(username="ann")
                echo.enqueue()
                transaction.set_rollback(rolled_back)
            assert django_user_model.objects.exists() is not rolled_back
            assert Instance.objects.exists() is not rolled_back

    def test_an_error_in_a_savepoint_takes_back_its_part_only(self):
        with transaction.atomic():
            kept = echo.enqueue()
            with transaction.atomic():
                echo.enqueue()
                transaction.set_rollback(True)
        assert list(Instance.objects.all()) == [kept]

    def test_a_duplicate_leaves_the_callers_transaction_usable(self):
        echo.using(identifier="a").enqueue()
        with transaction.atomic():
            with pytest.raises(DuplicateIdentifier):
                echo.using(identifier="a").enqueue()
            echo.using(identifier="b").enqueue()
        assert Instance.objects.count() == 2


def call(task_type, *args, **kwargs):
    return queue.Call(task_type=task_type, args=args, kwargs=kwargs)


def test_calls_of_many_types_with_options_of_their_own():
    calls = [
        call(echo.using(identifier="a"), x=1),
        call(add.using(priority=7), 1, 2),
        call(echo.using(collection="books"), x=2),
    ]
    one, two, three = queue.enqueue_calls(calls)
    assert [i.type.identifier for i in (one, two, three)] == [
        "tests.echo",
        "tests.add",
        "tests.echo",
    ]
    assert (one.identifier, two.priority, three.collection) == ("a", 7, "books")
    assert one.pk < three.pk


def test_calls_are_enqueued_all_or_none():
    """G13."""
    echo.using(identifier="taken").enqueue()
    calls = [call(add, 1), call(echo.using(identifier="taken"))]
    with pytest.raises(DuplicateIdentifier):
        queue.enqueue_calls(calls)
    with pytest.raises(InvalidInputs):
        queue.enqueue_calls([call(echo), call(add)])
    assert Instance.objects.count() == 1


def test_an_error_says_which_call_it_is_about():
    with pytest.raises(InvalidInputs) as caught:
        queue.enqueue_calls([call(echo), call(add)])
    assert caught.value.call == 1


def test_no_calls():
    assert queue.enqueue_calls([]) == []


def test_what_was_just_made_is_told_from_what_was_there():
    made = echo.using(identifier="a", existing="return")
    assert made.enqueue().is_new
    assert not made.enqueue().is_new
    assert not queue.get(type="tests.echo", identifier="a").is_new


@pytest.mark.django_db
def test_tests_count_only_their_own_callbacks():
    """In a TestCase nothing is ever committed that a daemon could be told of."""
    with TestCase.captureOnCommitCallbacks() as callbacks:
        echo.enqueue()
    assert callbacks == []


@pytest.mark.django_db
class TestRedriving:
    """``existing="redrive"``: all that is asked for is redriven, or nothing."""

    @pytest.fixture
    def failed(self):
        with Graph() as g:
            first = g.add(echo.using(identifier="a"), name="a")
            g.add(echo.using(identifier="b"), name="b", after=first)
        g.cancel()
        return echo.using(existing="redrive")

    def test_a_node_behind_a_failed_one(self, failed):
        with pytest.raises(IllegalTransition, match="waits for a FAILED one"):
            failed.using(identifier="b").enqueue()

    def test_both_in_whatever_order(self, failed):
        made = failed.enqueue_many([{}, {}], identifiers=["b", "a"])
        assert [row.state for row in made] == ["ACCEPTED", "ACCEPTED"]


class TestRows:
    """The row that is wrong is named (G13)."""

    def test_inputs_that_do_not_fit(self):
        rows = [{"first": 1}] * 5 + [{"frist": 1}]
        with pytest.raises(InvalidInputs, match=r"Row 5, counted from 0: .*frist") as raised:
            add.enqueue_many(rows)
        assert raised.value.argument == "frist"
        assert raised.value.call == 5
        assert not Instance.objects.exists()

    def test_what_is_no_row(self):
        with pytest.raises(InvalidInputs, match=r"Row 1, counted from 0: .*not 'text'"):
            add.enqueue_many([[1], "text"])


class TestExisting:
    @pytest.mark.parametrize("existing", ["return", "redrive"])
    def test_it_takes_an_identifier(self, existing):
        """G13: it would say nothing otherwise."""
        type = echo.using(existing=existing)
        for enqueue in (type.enqueue, lambda: type.enqueue_many([{}])):
            with pytest.raises(InvalidOption, match=f"existing='{existing}' .* give one"):
                enqueue()
        assert type.enqueue_many([{}], identifiers=["a"])[0].is_new


def test_the_end_of_what_was_removed_is_not_known(db):
    """The row may be purged, or deleted by an operator, while somebody waits for it."""
    instance = echo.enqueue()
    gone = type(instance).objects.get(pk=instance.pk)
    queue.cancel(instance)
    queue.delete(instance)
    with pytest.raises(UnknownInstance, match="any more"):
        gone._refresh()
