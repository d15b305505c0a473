"""The store contract: a key that one live Instance of a Type may have (``using(unique=…)``)."""

import pytest
from django.db import transaction

from atp import options
from atp.exceptions import UniqueTaken
from atp.models import Inputs, Instance, Kind, LogRecord, Task
from atp.payload.codec import Payload
from atp.states import Event, Reason, State
from atp.store.values import Submission

from ..helpers import Thread, at_once, remove_by_hand, wait_for
from .ends import FAILING, FINISHING
from .world import HOUR, ONE, SECOND, TWO, registration

KEY = {"unique": "customer-7", "own": options.own_options(unique="customer-7")}


def enqueue(world, data="{}", type=ONE, **options):
    submission = Submission(Payload("json", data), **KEY | options)
    [made] = world.store.enqueueing.enqueue(registration(type), [submission], who="tests")
    return made


@pytest.mark.parametrize(
    ("state", "existing", "told"),
    [
        (State.ACCEPTED, "raise", "is taken: .* is ACCEPTED"),
        (State.RUNNING, "raise", "is taken: .* is RUNNING"),
        (State.SCHEDULED, "replace", "is SCHEDULED, so it cannot be"),
        (State.PAUSED, "debounce", "is PAUSED, so it cannot be"),
    ],
)
def test_a_second_is_refused_with_nothing_written(world, host, state, existing, told):
    """G13: the error brings the live one; what is claimed has its inputs already."""
    case = world.bring_to(state, host, **KEY)
    before = world.snapshot()
    with pytest.raises(UniqueTaken, match=told) as caught:
        enqueue(world, '{"a":2}', existing=existing, due=world.store.now())
    assert caught.value.instance.pk == case.instance
    assert world.snapshot() == before


def test_another_type_and_another_key_are_free_and_twice_in_one_call_is_refused(world):
    for existing in ("raise", "replace", "debounce"):
        asked = Submission(Payload("json", "{}"), **KEY, existing=existing)
        with pytest.raises(UniqueTaken, match="twice in one call"):
            world.store.enqueueing.enqueue(registration(), [asked, asked])
    assert not Instance.objects.exists()
    enqueue(world)
    enqueue(world, type=TWO)
    enqueue(world, unique="customer-8", own=options.own_options(unique="customer-8"))
    world.enqueue(2)
    assert Task.objects.count() == 5


def test_what_waits_is_given_other_inputs_or_another_due_time(world):
    made = enqueue(world, '{"a":1}')
    assert enqueue(world, '{"a":2}', existing="replace", created_by="jane") == made
    assert Inputs.objects.get().value == {"a": 2}
    record = LogRecord.objects.last()
    assert (record.kind, record.state, record.who) == (Kind.CHANGE, State.ACCEPTED, "jane")
    later = world.store.now() + 30 * SECOND
    enqueue(world, '{"a":3}', existing="debounce", due=later)
    assert world.task(made.pk).due_at == later
    assert LogRecord.objects.filter(kind=Kind.CHANGE).count() == 2
    Task.objects.update(due_at=later - HOUR)
    [claimed] = world.host().claim()
    assert claimed.data == '{"a":2}'


def test_what_has_kept_a_step_is_not_replaced(world, host):
    """Its later steps would have the new inputs, and this one the result of the old."""
    case = world.bring_to(State.RUNNING, host, **KEY)
    key = case.instance, case.number, "a"
    world.store.steps.begin(*key)
    assert world.store.steps.keep(*key, Payload("json", "5"))
    host.move(case, Event.RETRY)
    before = world.snapshot()
    with pytest.raises(UniqueTaken, match="has begun steps"):
        enqueue(world, '{"a":2}', existing="replace")
    assert world.snapshot() == before


@pytest.mark.parametrize("way", [*FINISHING, *FAILING], ids=lambda way: way.__name__)
def test_however_it_ended_its_key_is_free(world, way):
    way(world, enqueue(world).pk, world.host(ONE))
    assert not Task.objects.exists()
    assert enqueue(world).is_new
    remove_by_hand(Instance.objects.all())
    assert enqueue(world).is_new


def test_what_is_put_back_has_its_key(world, host):
    case = world.bring_to(State.RUNNING, host, **KEY)
    for event in (Event.RELEASE, Event.RETRY):
        host.move(case, event)
        with pytest.raises(UniqueTaken):
            enqueue(world)
        [case] = host.claim()
        host.move(case, Event.START)


def test_a_redrive_is_refused_while_another_has_the_key(world):
    case = world.bring_to(State.FAILED, world.host(), **KEY)
    enqueue(world)
    before = world.snapshot()
    assert len(world.as_anyone(Event.REDRIVE, case.instance)) == 1
    assert world.snapshot() == before
    remove_by_hand(Instance.objects.exclude(pk=case.instance))
    assert world.as_anyone(Event.REDRIVE, case.instance) == []
    with pytest.raises(UniqueTaken):
        enqueue(world)


def test_a_task_that_was_lost_is_given_its_key_again(world):
    """A scan mends it (G1)."""
    made = enqueue(world)
    Task.objects.all().delete()
    done = world.store.upkeep.mend_instances([made.pk], world.store.now(), "a scan")
    assert list(done) == [made.pk]
    with pytest.raises(UniqueTaken):
        enqueue(world)


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_a_second_waits_for_a_transaction_that_has_it(self, world):
        """G7: what is rolled back has never had it."""
        world.store.types.register([registration()])
        with transaction.atomic():
            enqueue(world)
            transaction.set_rollback(True)
        with transaction.atomic():
            assert enqueue(world).is_new
            other = Thread(lambda: enqueue(world))
        with pytest.raises(UniqueTaken):
            other.result()

    def test_a_redrive_and_an_enqueue(self, world):
        """G6: one of them has the key."""
        for _ in range(3):
            case = world.bring_to(State.FAILED, world.host(), **KEY)
            refused, made = at_once(
                lambda key=case.instance: world.as_anyone(Event.REDRIVE, key),
                lambda: enqueue(world),
            )
            assert isinstance(made, UniqueTaken) == (refused == []), (refused, made)
            [task] = Task.objects.all()
            world.as_anyone(Event.FAIL, task.pk, reason=Reason.CANCELLED)

    def test_a_claim_and_a_replace(self, world, host):
        """Either it runs with the new inputs, or whoever came is told that it runs."""
        for _ in range(5):
            made = enqueue(world, '{"a":1}')
            claimed, outcome = at_once(
                host.claim, lambda: enqueue(world, '{"a":2}', existing="replace")
            )
            if not claimed:
                [*claimed] = wait_for(host.claim, what="its claim")
            [task] = claimed
            assert task.instance == made.pk
            is_new = task.data == '{"a":2}'
            assert is_new != isinstance(outcome, UniqueTaken), (task.data, outcome)
            host.move(task, Event.START, Event.FINISH)
