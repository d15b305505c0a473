"""Hooks in the store: written in the transaction of an end, once, whatever ends it (G1, G6)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction

from atp.exceptions import TaskGone, TypeInUse
from atp.models import Instance, Task, Type
from atp.payload.hooks import Hook
from atp.rows.log import Kind
from atp.rows.task import HOOKED as MARK
from atp.states import Event, Reason, State
from atp.store.values import Move

from . import graphs, hooks
from .hooks import ALERT, HOOKED, INDEX, hooked, hooks_of, own_hooks
from .world import ONE, registration, scope

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def each_end_has_its_hooks(world):
    yield
    hooks.check()


@pytest.fixture
def host(world):
    return world.host(HOOKED, ONE, ALERT, INDEX)


def claimed(host, world, count=1, type=None, **options):
    keys = world.enqueue(count, type=type or hooked(), **options)
    cases = host.claim(types=(HOOKED, ONE))
    assert [case.instance for case in cases] == keys
    return cases


def finish(host, *cases, **more):
    """Record in one batch that attempts started and finished, as a daemon does."""
    now = host.world.store.now()
    moves = [
        Move(Event.FINISH, c.instance, c.attempt, started=now, time=now, **more) for c in cases
    ]
    assert host.record(*moves) == []


def test_a_hook_is_given_the_facts_of_the_end(world, host):
    [case] = claimed(host, world)
    finish(host, case)
    instance = world.get(case.instance)
    facts = {"uuid": str(instance.uuid), "type": HOOKED, "state": "FINISHED", "reason": ""}
    assert hooks_of(case.instance) == [(INDEX, facts)]


MORE = [{"on": "on_finished", "type": INDEX, "more": "identifier collection"}]


@pytest.mark.parametrize("options", [{"identifier": "order-17", "collection": "x"}, {}])
def test_a_hook_that_asks_is_given_the_identifier_and_the_collection(world, host, options):
    # The first settled end is a surprise, the next one is expected.
    for prefix in ("a", "b"):
        given = {k: prefix + v for k, v in options.items()}
        asking = registration(HOOKED, hooks=MORE, hook_types=(registration(INDEX),))
        [case] = claimed(host, world, type=asking, **given)
        finish(host, case)
        [(_, data)] = hooks_of(case.instance)
        assert data["identifier"] == given.get("identifier")
        assert data["collection"] == given.get("collection", "")


def test_a_hook_that_an_older_version_wrote_is_the_same_hook(world, host):
    """During an upgrade a Type has the hook of the one version, its Instance that of the other."""
    asking = registration(HOOKED, hooks=MORE, hook_types=(registration(INDEX),))
    older = own_hooks({"on": "on_finished", "type": INDEX})
    [case] = claimed(host, world, type=asking, own=older)
    finish(host, case)
    assert len(hooks_of(case.instance)) == 1


def test_a_hook_is_a_task_like_any_other(world, host):
    [case] = claimed(host, world)
    finish(host, case)
    [hook] = host.claim(types=(INDEX,))
    finish(host, hook)
    assert world.events(hook.instance) == ["enqueue", "claim", "start", "finish"]
    assert world.get(hook.instance).hook_of == str(world.get(case.instance).uuid)


def test_the_log_of_what_ended_names_its_hook(world, host):
    [case] = claimed(host, world)
    finish(host, case)
    record = world.log(case.instance)[-1]
    assert (record.kind, record.state, record.attempt) == (Kind.HOOK, State.FINISHED, 1)
    assert Instance.objects.get(uuid=record.detail).type.identifier == INDEX


def test_a_batch_of_many_ends(world, host):
    """The first batch is a surprise, the next one is expected."""
    for _ in range(3):
        cases = claimed(host, world, 20)
        finish(host, *cases)
    assert Instance.objects.filter(type__identifier=INDEX).count() == 60


def test_a_batch_with_others_in_it(world, host):
    for _ in range(2):
        keys = world.enqueue(3) + world.enqueue(3, type=hooked())
        finish(host, *host.claim(types=(ONE, HOOKED)))
        assert {world.state(key) for key in keys} == {State.FINISHED}
    assert Instance.objects.filter(type__identifier=INDEX).count() == 6


FAILURES = (Reason.ERROR, Reason.FATAL)


@pytest.mark.parametrize("reason", FAILURES)
def test_fails(world, host, reason):
    for _ in range(2):
        [case] = claimed(host, world)
        host.move(case, Event.START)
        host.move(case, Event.FAIL, reason=reason)
        [(type, facts)] = hooks_of(case.instance)
        assert (type, facts["state"], facts["reason"]) == (ALERT, "FAILED", reason)


def test_started_and_failed_in_one_move(world, host):
    [case] = claimed(host, world)
    now = world.store.now()
    host.move(case, Event.FAIL, started=now, time=now, reason=Reason.ERROR, message="no")
    assert [type for type, _ in hooks_of(case.instance)] == [ALERT]


def test_a_retry_is_no_end(world, host):
    [case] = claimed(host, world)
    host.move(case, Event.START)
    host.move(case, Event.RETRY, delay=timedelta(0))
    assert hooks_of(case.instance) == []


def test_lost_too_often(world, host):
    """STALE: no process that ran it is left to say so."""
    [key] = world.enqueue(type=hooked(max_restarts=0))
    [case] = host.claim(types=(HOOKED,))
    host.move(case, Event.START)
    host.move(case, Event.EXPIRE)
    assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.STALE]


def test_its_daemon_is_lost(world, host):
    [key] = world.enqueue(type=hooked(max_restarts=0))
    [case] = host.claim(types=(HOOKED,))
    host.move(case, Event.START)
    host.lose_lease()
    world.store.sweep()
    assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.STALE]


def test_cancelled_while_it_waits(world):
    keys = world.enqueue(3, type=hooked())
    world.store.cancel(keys, who="ann")
    for key in keys:
        assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.CANCELLED]


def test_cancelled_by_its_holder(world, host):
    [case] = claimed(host, world)
    host.move(case, Event.START)
    world.store.cancel([case.instance], who="ann")
    host.move(case, Event.FAIL, reason=Reason.CANCELLED)
    assert [facts["reason"] for _, facts in hooks_of(case.instance)] == [Reason.CANCELLED]


def test_handed_back_and_then_cancelled(world, host):
    [case] = claimed(host, world)
    world.store.cancel([case.instance], who="ann")
    host.move(case, Event.RELEASE)
    assert [facts["reason"] for _, facts in hooks_of(case.instance)] == [Reason.CANCELLED]


def test_missed(world, host):
    now = world.store.now()
    [key] = world.enqueue(type=hooked(), start_before=now + SECOND)
    Task.objects.filter(pk=key).update(start_before=now - SECOND)
    world.store.miss()
    assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.MISSED]


def test_missed_as_a_claim_finds_it(world, host):
    now = world.store.now()
    [key] = world.enqueue(type=hooked(), start_before=now + SECOND)
    Task.objects.filter(pk=key).update(start_before=now - SECOND)
    assert host.claim(types=(HOOKED,)) == []
    world.store.miss()
    assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.MISSED]


def test_dropped(world):
    [key] = world.enqueue(type=hooked())
    world.store.shut(scope(HOOKED), "drop")
    world.store.drop()
    assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.DROPPED]


def test_a_node_fails_for_its_upstream(world, host):
    """And what is behind that in turn."""
    world.store.register([hooked(), *hooks.HOOK_TYPES])
    types = {"b": HOOKED, "c": HOOKED}
    first, *behind = graphs.chain(world, *"abc", types=types)
    [case] = host.claim(types=(ONE,))
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR)
    assert case.instance == first
    for key in behind:
        assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.UPSTREAM]


def test_a_node_that_finishes(world, host):
    world.store.register([hooked(), *hooks.HOOK_TYPES])
    keys = graphs.chain(world, *"ab", types=dict.fromkeys("ab", HOOKED))
    for key in keys:
        [case] = host.claim(types=(HOOKED,))
        finish(host, case)
        assert [type for type, _ in hooks_of(key)] == [INDEX]


def test_concluded_in_the_transaction_of_its_handler(world, host):
    """G7: a transactional Type commits its hooks with what its handler has written."""
    [case] = claimed(host, world)
    host.move(case, Event.START)
    move = Move(Event.FINISH, case.instance, case.attempt, time=world.store.now())
    with transaction.atomic():
        world.store.conclude(move)
    assert [type for type, _ in hooks_of(case.instance)] == [INDEX]
    with pytest.raises(TaskGone), transaction.atomic():
        world.store.conclude(move)


def test_rolled_back_with_the_end(world, host):
    """G7: both or neither."""
    [case] = claimed(host, world)
    with transaction.atomic():
        finish(host, case)
        assert len(hooks_of(case.instance)) == 1
        transaction.set_rollback(True)
    assert (world.state(case.instance), hooks_of(case.instance)) == (State.SCHEDULED, [])
    finish(host, case)
    assert len(hooks_of(case.instance)) == 1


def test_recorded_again_it_is_refused(world, host):
    """G6: who does not know whether it was written records it again."""
    [case] = claimed(host, world)
    now = world.store.now()
    move = Move(Event.FINISH, case.instance, case.attempt, started=now, time=now, who="host")
    assert host.record(move) == []
    host.record(move)
    assert len(hooks_of(case.instance)) == 1


def test_too_late_it_has_no_hook(world, host):
    """G4."""
    [case] = claimed(host, world)
    host.lose_lease()
    world.store.sweep()
    move = Move(Event.FINISH, case.instance, case.attempt, time=world.store.now())
    assert host.record(move) == [move]
    assert hooks_of(case.instance) == []


def test_each_end_has_its_own(world, host):
    """One that is redriven, and ends again, has hooks again."""
    [case] = claimed(host, world)
    host.move(case, Event.START)
    host.move(case, Event.FAIL, reason=Reason.ERROR)
    world.as_anyone(Event.REDRIVE, case.instance)
    assert world.task(case.instance).waits == MARK
    [again] = host.claim(types=(HOOKED,))
    finish(host, again)
    assert [type for type, _ in hooks_of(case.instance)] == [ALERT, INDEX]


def test_redriven_and_cancelled_twice_in_one_attempt(world):
    [key] = world.enqueue(type=hooked())
    for count in (1, 2):
        world.store.cancel([key])
        assert len(hooks_of(key)) == count
        world.as_anyone(Event.REDRIVE, key)


def test_a_hook_has_none(world, host):
    """Not even if its Type has: nor when it is redriven."""
    world.store.register([hooked(), *hooks.HOOK_TYPES])
    Type.objects.filter(identifier=INDEX).update(hooks=[{"on": "on_failed", "type": ALERT}])
    [case] = claimed(host, world)
    finish(host, case)
    [hook] = host.claim(types=(INDEX,))
    for _ in range(2):
        host.move(hook, Event.START)
        host.move(hook, Event.FAIL, reason=Reason.ERROR)
        world.as_anyone(Event.REDRIVE, hook.instance)
        assert world.task(hook.instance).waits is None
        [hook] = host.claim(types=(INDEX,))
    assert not Instance.objects.filter(type__identifier=ALERT).exists()


def test_hooks_of_its_own(world, host):
    entry = {"on": "on_finished", "type": ALERT, "inputs": '{"to":"ann"}', "priority": 7}
    options = {"own": own_hooks(entry), "waits": MARK}
    plain = replace(registration(), hook_types=hooks.HOOK_TYPES)
    [case] = claimed(host, world, type=plain, **options)
    finish(host, case)
    [(type, facts)] = hooks_of(case.instance)
    assert (type, facts["to"], facts["type"]) == (ALERT, "ann", ONE)
    assert Instance.objects.get(type__identifier=ALERT).priority == 7


def test_hooks_of_its_own_beside_those_of_its_type(world, host):
    """One that both name is written once."""
    entries = hooks.BOTH[1], {"on": "on_finished", "type": ALERT}
    [case] = claimed(host, world, own=own_hooks(*entries), waits=MARK)
    finish(host, case)
    assert sorted(type for type, _ in hooks_of(case.instance)) == [ALERT, INDEX]


def test_a_type_without_hooks_has_no_mark(world):
    [key] = world.enqueue()
    assert world.task(key).waits is None


@pytest.mark.parametrize("count", [1, 3])
def test_a_hooked_type_has_a_mark(world, count):
    for key in world.enqueue(count, type=hooked()):
        assert world.task(key).waits == MARK
        assert not world.task(key).is_blocked


def test_what_is_not_kept_stays_until_the_purge(world, host):
    """G12: with retention 0 it goes, but after its end."""
    for _ in range(2):
        [key] = world.enqueue(type=hooked(retention=timedelta(0)))
        [case] = host.claim(types=(HOOKED,))
        finish(host, case, kept=False)
        assert len(hooks_of(key)) == 1
        assert world.store.purge() == 1
        assert not Instance.objects.filter(pk=key).exists()
    assert Instance.objects.filter(type__identifier=INDEX).count() == 2


def test_a_scan_gives_it_its_mark(world):
    """A Task that was lost is made anew, with the mark."""
    [key] = world.enqueue(type=hooked())
    Task.objects.filter(pk=key).delete()
    world.store.mend_instances([key], world.store.now(), "tests")
    assert world.task(key).waits == MARK


def test_a_hook_whose_type_is_gone_stops_no_end(world, host):
    """Its log says so."""
    [case] = claimed(host, world)
    Type.objects.filter(identifier=INDEX).delete()
    finish(host, case)
    record = world.log(case.instance)[-1]
    assert (record.kind, record.detail, record.level) == (Kind.HOOK, "", 30)
    world.store.register([registration(INDEX)])
    Type.objects.filter(identifier=HOOKED).update(hooks=[hooks.BOTH[0]])


def test_a_hook_of_a_type_cannot_be_unregistered(world):
    world.store.register([hooked(), *hooks.HOOK_TYPES])
    with pytest.raises(TypeInUse, match=f"it is a hook of '{HOOKED}'"):
        world.store.unregister(ALERT)


def test_a_hook_of_a_live_instance_cannot_be_unregistered(world):
    entry = Hook(on="on_failed", type=ALERT).entry()
    plain = replace(registration(), hook_types=hooks.HOOK_TYPES)
    [key] = world.enqueue(type=plain, own=own_hooks(entry), waits=MARK)
    with pytest.raises(TypeInUse, match="it is a hook of a live Instance"):
        world.store.unregister(ALERT)
    world.store.unregister(INDEX)
    world.store.register([registration(INDEX)])
    world.store.cancel([key])


def test_types_of_hooks_are_registered_with_the_first_instance(world):
    world.enqueue(type=hooked())
    assert Type.objects.filter(identifier__in=(ALERT, INDEX)).count() == 2
