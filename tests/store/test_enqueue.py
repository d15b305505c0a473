"""The store contract: enqueue."""

from datetime import timedelta

import pytest
from django.db import transaction

from atp.exceptions import DuplicateIdentifier
from atp.models import Inputs, Instance, LogRecord, Task
from atp.payload.codec import Payload
from atp.states import Event, Reason, State
from atp.store.values import Submission

from .world import ONE, TWO, registration


def request(identifier=None, data="{}", **options):
    return Submission(inputs=Payload("json", data), identifier=identifier, **options)


def test_it_writes_instance_inputs_log_and_task(world):
    due = world.store.now() + timedelta(hours=1)
    late = due + timedelta(hours=1)
    asked = request(
        "key",
        '{"a":1}',
        collection="esa",
        priority=7,
        due=due,
        start_before=late,
        created_by="ann",
    )
    [instance] = world.store.enqueue(registration(), [asked], who="tests")
    found = Instance.objects.get(pk=instance.pk)
    assert (found.state, found.identifier, found.collection) == (State.ACCEPTED, "key", "esa")
    assert (found.priority, found.start_before, found.created_by) == (7, late, "ann")
    assert (found.attempt, found.restarts, found.retries, found.lost) == (0, 0, 0, 0)
    task = Task.objects.get(pk=instance.pk)
    assert (task.collection, task.priority, task.due_at, task.start_before) == (
        "esa",
        7,
        due,
        late,
    )
    assert (task.daemon, task.attempt, task.request) == (None, 0, "")
    assert task.type == found.type
    assert Inputs.objects.get(pk=instance.pk).value == {"a": 1}
    [record] = world.log(instance.pk)
    assert (record.event, record.state, record.attempt) == (Event.ENQUEUE, State.ACCEPTED, 0)
    assert (record.who, record.time) == ("ann", found.created)


def test_without_a_due_time_it_is_due_at_once(world):
    before = world.store.now()
    [key] = world.enqueue()
    assert before <= world.task(key).due_at <= world.store.now()
    assert world.log(key)[0].who == "tests"


def test_instances_come_back_in_the_order_of_the_requests(world):
    asked = [request(data=f'{{"n":{n}}}') for n in range(250)]
    instances = world.store.enqueue(registration(), asked)
    keys = [instance.pk for instance in instances]
    assert keys == sorted(keys)
    values = Inputs.objects.in_bulk(keys)
    assert [values[key].value["n"] for key in keys] == list(range(250))


def test_an_empty_batch_is_no_error(world):
    assert world.store.enqueue(registration(), []) == []


class TestIdentifiers:
    def test_a_taken_identifier_is_refused_with_nothing_written(self, world):
        """G13: all or none, and the error has the existing Instance."""
        [key] = world.enqueue(identifier="a")
        before = world.snapshot()
        with pytest.raises(DuplicateIdentifier, match="'a'") as caught:
            world.store.enqueue(registration(), [request("b"), request("a"), request("c")])
        assert caught.value.instance.pk == key
        assert world.snapshot() == before

    def test_a_duplicate_within_one_batch_is_refused(self, world):
        """G13."""
        world.store.register([registration()])
        before = world.snapshot()
        with pytest.raises(DuplicateIdentifier, match="'a'"):
            world.store.enqueue(registration(), [request("a"), request("b"), request("a")])
        assert world.snapshot() == before

    @pytest.mark.parametrize("existing", ["return", "redrive"])
    def test_a_duplicate_within_one_batch_is_the_same_instance(self, world, existing):
        asked = [request(n, existing=existing) for n in ("a", "b", "a")]
        first, second, third = world.store.enqueue(registration(), asked)
        assert first.pk == third.pk != second.pk
        assert Task.objects.count() == 2

    def test_an_identifier_is_unique_within_its_type_only(self, world):
        world.enqueue(identifier="a")
        world.enqueue(type=TWO, identifier="a")
        assert Instance.objects.filter(identifier="a").count() == 2

    def test_none_is_no_identifier(self, world):
        world.enqueue(3)
        assert Instance.objects.filter(identifier=None).count() == 3

    @pytest.mark.parametrize("state", State)
    def test_return_gives_the_existing_one_whatever_its_state(self, world, state):
        case = world.bring_to(state, world.host(), identifier="a")
        before = world.snapshot()
        [key] = world.enqueue(identifier="a", existing="return")
        assert key == case.instance
        assert world.snapshot() == before

    @pytest.mark.parametrize("state", sorted(set(State) - {State.FAILED}))
    def test_redrive_leaves_what_has_not_failed(self, world, state):
        case = world.bring_to(state, world.host(), identifier="a")
        before = world.snapshot()
        [key] = world.enqueue(identifier="a", existing="redrive")
        assert key == case.instance
        assert world.snapshot() == before

    def test_redrive_runs_a_failed_one_again(self, world):
        case = world.bring_to(State.FAILED, world.host(), identifier="a")
        asked = request("a", existing="redrive", created_by="ann")
        [instance] = world.store.enqueue(registration(), [asked], who="tests")
        assert instance.pk == case.instance
        assert (instance.state, instance.reason) == (State.ACCEPTED, "")
        assert world.task(case.instance).attempt == case.attempt
        last = world.log(case.instance)[-1]
        assert (last.event, last.who) == (Event.REDRIVE, "ann")

    def test_redrive_of_one_that_is_twice_in_the_batch(self, world):
        case = world.bring_to(State.FAILED, world.host(), identifier="a")
        asked = [request("a", existing="redrive")] * 2
        instances = world.store.enqueue(registration(), asked)
        assert [(i.pk, i.state) for i in instances] == [(case.instance, State.ACCEPTED)] * 2
        assert world.events(case.instance).count(Event.REDRIVE) == 1

    def test_an_identifier_is_free_again_once_its_instance_is_removed(self, world):
        [key] = world.enqueue(identifier="a")
        world.as_anyone(Event.FAIL, key, reason=Reason.CANCELLED)
        world.store.purge(instances=[key])
        assert world.enqueue(identifier="a") != [key]


def test_in_a_transaction_that_is_rolled_back_nothing_is_written(world):
    """G7."""
    world.store.register([registration()])
    before = world.snapshot()
    with transaction.atomic():
        world.enqueue(3)
        transaction.set_rollback(True)
    assert world.snapshot() == before
    assert LogRecord.objects.about(f"type:{ONE}").exists()
