"""The store contract: enqueue."""

import pytest

from atp import options
from atp.exceptions import DuplicateIdentifier
from atp.models import Inputs, Instance, Task
from atp.payload.codec import Payload
from atp.states import Event, State
from atp.store.values import Submission

from .world import HOUR, SECOND, registration


def request(identifier=None, data="{}", **options):
    return Submission(inputs=Payload("json", data), identifier=identifier, **options)


def test_it_writes_instance_inputs_log_and_task(world):
    due = world.store.now() + HOUR
    late = due + HOUR
    asked = request(
        "key", '{"a":1}', collection="esa", priority=7, due=due, start_before=late, created_by="ann"
    )
    [instance] = world.store.enqueueing.enqueue(registration(), [asked], who="tests")
    found = Instance.objects.get(pk=instance.pk)
    assert (found.state, found.identifier, found.collection) == (State.ACCEPTED, "key", "esa")
    assert (found.priority, found.start_before, found.created_by) == (7, late, "ann")
    assert (found.attempt, found.restarts, found.retries, found.lost) == (0, 0, 0, 0)
    task = Task.objects.get(pk=instance.pk)
    assert (task.collection, task.priority, task.due_at, task.start_before) == ("esa", 7, due, late)
    assert (task.daemon, task.attempt, task.request) == (None, 0, "")
    assert task.type == found.type
    assert Inputs.objects.get(pk=instance.pk).value == {"a": 1}
    [record] = world.log(instance.pk)
    assert (record.event, record.state, record.attempt) == (Event.ENQUEUE, State.ACCEPTED, 0)
    assert (record.who, record.time) == ("ann", found.created)


@pytest.mark.slow
def test_instances_come_back_in_the_order_of_the_requests(world):
    asked = [request(data=f'{{"n":{n}}}') for n in range(250)]
    instances = world.store.enqueueing.enqueue(registration(), asked)
    keys = [instance.pk for instance in instances]
    assert keys == sorted(keys)
    values = Inputs.objects.in_bulk(keys)
    assert [values[key].value["n"] for key in keys] == list(range(250))
    assert world.store.enqueueing.enqueue(registration(), []) == []


class TestIdentifiers:
    def test_a_taken_identifier_is_refused_with_nothing_written(self, world):
        """G13: all or none, and the error has the existing Instance."""
        [key] = world.enqueue(identifier="a")
        before = world.snapshot()
        asked = [request(name) for name in "bac"]
        with pytest.raises(DuplicateIdentifier, match="'a'") as caught:
            world.store.enqueueing.enqueue(registration(), asked)
        assert caught.value.instance.pk == key
        assert world.snapshot() == before

    def test_a_duplicate_within_one_batch_is_refused_or_the_same_instance(self, world):
        """G13."""
        world.store.types.register([registration()])
        before = world.snapshot()
        with pytest.raises(DuplicateIdentifier, match="'a'"):
            world.store.enqueueing.enqueue(registration(), [request(name) for name in "aba"])
        assert world.snapshot() == before
        for number, existing in enumerate(("return", "redrive"), 1):
            asked = [request(f"{name}{number}", existing=existing) for name in "aba"]
            first, second, third = world.store.enqueueing.enqueue(registration(), asked)
            assert first.pk == third.pk != second.pk
            assert Task.objects.count() == 2 * number

    def test_redrive_runs_a_failed_one_again(self, world):
        case = world.bring_to(State.FAILED, world.host(), identifier="a")
        asked = request("a", existing="redrive", created_by="ann")
        [instance] = world.store.enqueueing.enqueue(registration(), [asked], who="tests")
        assert instance.pk == case.instance
        assert (instance.state, instance.reason) == (State.ACCEPTED, "")
        assert world.task(case.instance).attempt == case.number
        last = world.log(case.instance)[-1]
        assert (last.event, last.who) == (Event.REDRIVE, "ann")


@pytest.mark.parametrize("limit", [1, 10])
def test_a_claim_brings_the_timeout_and_retries_that_an_instance_has_of_its_own(world, limit):
    """Of one as of many; what has nothing of its own has what its Type says."""
    nine, one = 9 * SECOND, 1.5 * SECOND
    own = options.own_options(timeout=one, max_retries=7)
    submissions = [request(own=each) for each in (own, None, options.own_options(max_retries=0))]
    made = world.store.enqueueing.enqueue(registration(timeout=nine, max_retries=4), submissions)
    assert [instance.max_retries for instance in made] == [7, None, 0]
    host = world.host()
    claimed = [each for _ in range(3) for each in host.claim(limit)]
    found = {each.instance: (each.timeout, each.max_retries) for each in claimed}
    assert [found[instance.pk] for instance in made] == [(one, 7), (nine, 4), (nine, 0)]
