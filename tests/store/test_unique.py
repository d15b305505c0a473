"""The store contract: a key that one live Instance of a Type may have (``using(unique=…)``)."""

from datetime import timedelta

import pytest
from django.db import transaction

from atp.exceptions import UniqueTaken
from atp.models import Inputs, Instance, LogRecord, Task
from atp.payload import own
from atp.payload.codec import Payload
from atp.rows.log import Kind
from atp.states import Event, Reason, State
from atp.store.values import Move, Submission
from tests.helpers import remove_by_hand

from ..helpers import Thread, at_once, wait_for
from .world import ONE, SECOND, TWO, registration, scope

KEY = {"unique": "customer-7", "own": own.of(unique="customer-7")}
CLAIMERS = 4


def enqueue(world, data="{}", type=ONE, **options):
    submission = Submission(Payload("json", data), **KEY | options)
    [made] = world.store.enqueue(registration(type), [submission], who="tests")
    return made


class TestTaken:
    @pytest.mark.parametrize("state", [State.ACCEPTED, State.SCHEDULED, State.RUNNING])
    def test_a_second_is_refused_with_nothing_written(self, world, state):
        """G13: the error brings the live one."""
        case = world.bring_to(state, world.host(), **KEY)
        before = world.snapshot()
        with pytest.raises(UniqueTaken, match=f"is taken: .* is {state}") as caught:
            enqueue(world)
        assert caught.value.instance.pk == case.instance
        assert world.snapshot() == before

    def test_return_gives_the_live_one(self, world):
        made = enqueue(world)
        again = enqueue(world, existing="return")
        assert (again, again.is_new, made.is_new) == (made, False, True)
        assert Instance.objects.count() == 1

    def test_another_type_and_another_key_are_free(self, world):
        enqueue(world)
        enqueue(world, type=TWO)
        enqueue(world, unique="customer-8", own=own.of(unique="customer-8"))
        world.enqueue(2)
        assert Task.objects.count() == 5

    @pytest.mark.parametrize("existing", ["raise", "replace", "debounce"])
    def test_twice_in_one_call_is_refused(self, world, existing):
        asked = Submission(Payload("json", "{}"), **KEY, existing=existing)
        with pytest.raises(UniqueTaken, match="twice in one call"):
            world.store.enqueue(registration(), [asked, asked])
        assert not Instance.objects.exists()


class TestReplace:
    def test_what_waits_is_given_the_inputs(self, world):
        made = enqueue(world, '{"a":1}')
        again = enqueue(world, '{"a":2}', existing="replace", created_by="jane")
        assert again == made
        assert Inputs.objects.get().value == {"a": 2}
        record = LogRecord.objects.last()
        assert (record.kind, record.state, record.who) == (Kind.CHANGE, State.ACCEPTED, "jane")
        [claimed] = world.host().claim()
        assert claimed.data == '{"a":2}'

    @pytest.mark.parametrize("existing", ["replace", "debounce"])
    @pytest.mark.parametrize("state", [State.SCHEDULED, State.RUNNING, State.PAUSED])
    def test_what_is_claimed_is_left_as_it_is(self, world, state, existing):
        """No enqueue is lost in silence: it has the old inputs already (G13)."""
        world.bring_to(state, world.host(), **KEY)
        before = world.snapshot()
        with pytest.raises(UniqueTaken, match=f"is {state}, so it cannot be"):
            enqueue(world, '{"a":2}', existing=existing, due=world.store.now())
        assert world.snapshot() == before

    def test_what_has_kept_a_step_is_left_as_it_is(self, world):
        """Its later steps would have the new inputs, and this one the result of the old."""
        host = world.host()
        case = world.bring_to(State.RUNNING, host, **KEY)
        key = case.instance, case.attempt, "a"
        world.store.steps.begin(*key)
        assert world.store.steps.keep(*key, Payload("json", "5"))
        host.move(case, Event.RETRY)
        before = world.snapshot()
        with pytest.raises(UniqueTaken, match="has begun steps"):
            enqueue(world, '{"a":2}', existing="replace")
        assert world.snapshot() == before


class TestDebounce:
    def test_it_is_due_as_the_last_one_said(self, world):
        now = world.store.now()
        made = enqueue(world, '{"a":1}', due=now + 10 * SECOND)
        later = now + 30 * SECOND
        enqueue(world, '{"a":2}', existing="debounce", due=later)
        assert world.task(made.pk).due_at == later
        assert Inputs.objects.get().value == {"a": 1}
        assert LogRecord.objects.last().kind == Kind.CHANGE

    def test_without_one_it_is_enqueued_as_ever(self, world):
        later = world.store.now() + 30 * SECOND
        made = enqueue(world, existing="debounce", due=later)
        assert (made.is_new, world.task(made.pk).due_at) == (True, later)


def cancelled(world, host):
    case = world.bring_to(State.ACCEPTED, host, **KEY)
    world.store.cancel([case.instance])


def missed(world, host):
    enqueue(world, start_before=world.store.now() - SECOND)
    world.store.miss()


def dropped(world, host):
    enqueue(world)
    world.store.shut(scope(ONE), "drop")
    world.store.drop()


def stale(world, host):
    [case] = [world.bring_to(State.RUNNING, host, type=registration(max_restarts=0), **KEY)]
    host.record(Move(Event.EXPIRE, case.instance, case.attempt))
    [again] = host.claim() or [None]
    if again:
        host.move(again, Event.START)
        host.record(Move(Event.EXPIRE, again.instance, again.attempt))


def unkept(world, host):
    of = registration(retention=timedelta(0))
    case = world.bring_to(State.RUNNING, host, type=of, **KEY)
    host.record(Move(Event.FINISH, case.instance, case.attempt, kept=False))


def concluded(world, host):
    case = world.bring_to(State.RUNNING, host, **KEY)
    world.store.conclude(Move(Event.FINISH, case.instance, case.attempt))


def removed(world, host):
    enqueue(world)
    remove_by_hand(Instance.objects.all())


class TestFreed:
    @pytest.mark.parametrize("state", [State.FINISHED, State.FAILED])
    def test_when_it_has_ended(self, world, state):
        world.bring_to(state, world.host(), **KEY)
        assert enqueue(world).is_new

    @pytest.mark.parametrize("end", [cancelled, missed, dropped, stale, unkept, concluded, removed])
    def test_however_it_ended(self, world, end):
        end(world, world.host())
        assert not Task.objects.exists()
        assert enqueue(world).is_new

    @pytest.mark.parametrize("event", [Event.RETRY, Event.DEFER, Event.RELEASE, Event.EXPIRE])
    def test_not_by_what_puts_it_back(self, world, event):
        host = world.host()
        case = world.bring_to(State.RUNNING, host, **KEY)
        host.record(Move(event, case.instance, case.attempt, delay=timedelta(hours=1)))
        with pytest.raises(UniqueTaken):
            enqueue(world)


class TestRedrive:
    def test_it_takes_the_key_again(self, world):
        case = world.bring_to(State.FAILED, world.host(), **KEY)
        assert world.as_anyone(Event.REDRIVE, case.instance) == []
        with pytest.raises(UniqueTaken):
            enqueue(world)

    def test_it_is_refused_while_another_has_the_key(self, world):
        case = world.bring_to(State.FAILED, world.host(), **KEY)
        enqueue(world)
        before = world.snapshot()
        assert len(world.as_anyone(Event.REDRIVE, case.instance)) == 1
        assert world.snapshot() == before

    def test_of_two_with_one_key_the_first_is_redriven(self, world):
        host = world.host()
        keys = [world.bring_to(State.FAILED, host, **KEY).instance for _ in range(2)]
        moves = [Move(event=Event.REDRIVE, instance=key) for key in keys]
        assert [move.instance for move in world.store.record(moves)] == keys[1:]
        assert world.state(keys[0]) == State.ACCEPTED


def test_a_task_that_was_lost_is_given_its_key_again(world):
    """A scan mends it (G1)."""
    made = enqueue(world)
    Task.objects.all().delete()
    done = world.store.mend_instances([made.pk], world.store.now(), "a scan")
    assert list(done) == [made.pk]
    with pytest.raises(UniqueTaken):
        enqueue(world)


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_from_many_threads_one_is_made(self, world):
        """G13: one of them gets through, and the others are told by name."""
        outcomes = at_once(*[lambda: enqueue(world).pk] * CLAIMERS)
        made = [outcome for outcome in outcomes if isinstance(outcome, int)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, UniqueTaken)]
        assert (len(made), len(refused)) == (1, CLAIMERS - 1), outcomes
        assert {error.instance.pk for error in refused} == set(made)
        assert Instance.objects.count() == Task.objects.count() == 1

    @pytest.mark.parametrize("existing", ["return", "replace", "debounce"])
    def test_from_many_threads_all_get_the_same(self, world, existing):
        due = world.store.now() + timedelta(hours=1)
        outcomes = at_once(*[lambda: enqueue(world, existing=existing, due=due).pk] * CLAIMERS)
        assert len(set(outcomes)) == 1, outcomes
        assert Instance.objects.count() == 1

    def test_a_second_waits_for_a_transaction_that_has_it(self, world):
        world.store.register([registration()])
        with transaction.atomic():
            enqueue(world)
            other = Thread(lambda: enqueue(world))
        with pytest.raises(UniqueTaken):
            other.result()

    def test_what_is_rolled_back_has_never_had_it(self, world):
        """G7."""
        with transaction.atomic():
            enqueue(world)
            transaction.set_rollback(True)
        assert enqueue(world).is_new

    def test_a_redrive_and_an_enqueue(self, world):
        """G6: one of them has the key."""
        for _ in range(5):
            case = world.bring_to(State.FAILED, world.host(), **KEY)
            refused, made = at_once(
                lambda key=case.instance: world.as_anyone(Event.REDRIVE, key),
                lambda: enqueue(world),
            )
            assert isinstance(made, UniqueTaken) == (refused == []), (refused, made)
            [task] = Task.objects.all()
            world.as_anyone(Event.FAIL, task.pk, reason=Reason.CANCELLED)

    def test_a_claim_and_a_replace(self, world):
        """Either it runs with the new inputs, or whoever came is told that it runs."""
        host = world.host()
        for _ in range(10):
            made = enqueue(world, '{"a":1}')
            claimed, outcome = at_once(
                lambda: host.claim(),
                lambda: enqueue(world, '{"a":2}', existing="replace"),
            )
            if not claimed:
                [*claimed] = wait_for(host.claim, what="its claim")
            [task] = claimed
            assert task.instance == made.pk
            is_new = task.data == '{"a":2}'
            assert is_new != isinstance(outcome, UniqueTaken), (task.data, outcome)
            host.move(task, Event.START, Event.FINISH)
