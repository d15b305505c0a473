"""Hooks in the store: written in the transaction of an end, once, whatever ends it (G1, G6)."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from atp.exceptions import TypeInUse
from atp.models import HOOKED as MARK
from atp.models import Instance, Kind, Task, Type
from atp.states import Event, Reason, State

from ..helpers import Thread, at_once
from . import graphs, hooks
from .ends import FAILING, FINISHING, by_failing, finish, running
from .hooks import ALERT, HOOKED, INDEX, hooked, hooks_of, own_hooks
from .world import ONE, finish_of, move_of, needs_row_locks, registration, scope


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


def test_a_hook_is_given_the_facts_of_the_end_and_is_a_task_like_any_other(world, host):
    [case] = claimed(host, world)
    finish(host, case)
    instance = world.get(case.instance)
    facts = {"uuid": str(instance.uuid), "type": HOOKED, "state": "FINISHED", "reason": ""}
    assert hooks_of(case.instance) == [(INDEX, facts)]
    [hook] = host.claim(types=(INDEX,))
    finish(host, hook)
    assert world.events(hook.instance) == ["enqueue", "claim", "start", "finish"]
    assert world.get(hook.instance).hook_of == str(instance.uuid)
    record = world.log(case.instance)[-1]
    assert (record.kind, record.state, record.attempt) == (Kind.HOOK, State.FINISHED, 1)
    assert Instance.objects.get(uuid=record.detail).type.identifier == INDEX


MORE = [{"on": "on_finished", "type": INDEX, "more": "identifier collection"}]
ASKING = registration(HOOKED, hooks=MORE, hook_types=(registration(INDEX),))


def test_a_hook_that_asks_is_given_the_identifier_and_the_collection(world, host):
    # The first settled end is a surprise, the next one is expected.
    for identifier, collection in (("order-17", "x"), (None, "")):
        own = {"identifier": identifier, "collection": collection}
        [case] = claimed(host, world, type=ASKING, **own)
        finish(host, case)
        [(_, data)] = hooks_of(case.instance)
        assert data.items() >= own.items()


@pytest.mark.parametrize("way", [*FINISHING, *FAILING], ids=lambda way: way.__name__)
def test_every_end_has_its_hook(world, way):
    """G6: whatever ends an Instance; STALE, where no process that ran it is left to say so, too."""
    [key] = world.enqueue(type=registration(ONE, hooks=hooks.BOTH, hook_types=hooks.HOOK_TYPES))
    way(world, key, world.host(ONE))
    # A claim leaves what is too late and has hooks to it.
    world.store.claims.miss()
    instance = world.get(key)
    [(type, facts)] = hooks_of(key)
    assert (type, facts["state"], facts["reason"]) == (
        (INDEX, "FINISHED", "") if way in FINISHING else (ALERT, "FAILED", instance.reason)
    )


def test_a_node_fails_for_its_upstream(world, host):
    """And what is behind that in turn."""
    world.store.types.register([hooked(), *hooks.HOOK_TYPES])
    types = {"b": HOOKED, "c": HOOKED}
    first, *behind = graphs.chain(world, *"abc", types=types)
    by_failing(world, first, host)
    for key in behind:
        assert [facts["reason"] for _, facts in hooks_of(key)] == [Reason.UPSTREAM]


def test_an_end_that_is_rolled_back_or_late_has_no_hook_and_one_recorded_again_has_one(world, host):
    """G4, G6, G7: both or neither."""
    [late] = claimed(host, world)
    host.lose_lease()
    world.store.daemons.sweep()
    end = move_of(late, Event.FINISH, time=world.store.now())
    assert host.record(end) == [end]
    assert hooks_of(late.instance) == []
    host = world.host(HOOKED)
    [case] = host.claim()
    end = finish_of(world, case, who="host")
    with transaction.atomic():
        assert host.record(end) == []
        assert len(hooks_of(case.instance)) == 1
        transaction.set_rollback(True)
    assert (world.state(case.instance), hooks_of(case.instance)) == (State.SCHEDULED, [])
    for _ in range(2):
        host.record(end)
        assert len(hooks_of(case.instance)) == 1


def test_each_end_has_its_own(world, host):
    """One that is redriven, and ends again, has hooks again."""
    [key] = world.enqueue(type=hooked())
    by_failing(world, key, host)
    world.as_anyone(Event.REDRIVE, key)
    assert world.task(key).waits == MARK
    finish(host, *host.claim(types=(HOOKED,)))
    assert [type for type, _ in hooks_of(key)] == [ALERT, INDEX]


def test_a_hook_has_none(world, host):
    """Not even if its Type has: nor when it is redriven."""
    world.store.types.register([hooked(), *hooks.HOOK_TYPES])
    Type.objects.filter(identifier=INDEX).update(hooks=[{"on": "on_failed", "type": ALERT}])
    finish(host, *claimed(host, world))
    hook = Task.objects.get()
    for _ in range(2):
        by_failing(world, hook.pk, host)
        world.as_anyone(Event.REDRIVE, hook.pk)
        assert world.task(hook.pk).waits is None
    assert not Instance.objects.filter(type__identifier=ALERT).exists()


def test_hooks_of_its_own(world, host):
    """Also beside those of its Type: one that both name is written once, whoever wrote it."""
    entry = {"on": "on_finished", "type": ALERT, "inputs": '{"to":"ann"}', "priority": 7}
    plain = replace(registration(), hook_types=hooks.HOOK_TYPES)
    older = {"on": "on_finished", "type": INDEX}
    for type, entries, wanted in (
        (plain, [entry], [ALERT]),
        (ASKING, [older], [INDEX]),
        (hooked(), [hooks.BOTH[1], entry], [ALERT, INDEX]),
    ):
        [case] = claimed(host, world, type=type, own=own_hooks(*entries), waits=MARK)
        finish(host, case)
        assert sorted(type for type, _ in hooks_of(case.instance)) == wanted
        found = dict(hooks_of(case.instance))
        if ALERT in found:
            assert (found[ALERT]["to"], found[ALERT]["type"]) == ("ann", type.identifier)
    assert {row.priority for row in Instance.objects.filter(type__identifier=ALERT)} == {7}


def test_what_is_not_kept_stays_until_the_purge(world, host):
    """G12: with retention 0 it goes, but after its end."""
    for _ in range(2):
        [case] = claimed(host, world, type=hooked(retention=timedelta(0)))
        finish(host, case, kept=False)
        assert len(hooks_of(case.instance)) == 1
        assert world.store.removal.purge() == 1
        assert not Instance.objects.filter(pk=case.instance).exists()
    assert Instance.objects.filter(type__identifier=INDEX).count() == 2


def test_a_scan_gives_it_its_mark(world):
    """A Task that was lost is made anew, with the mark."""
    [key] = world.enqueue(type=hooked())
    Task.objects.filter(pk=key).delete()
    world.store.upkeep.mend_instances([key], world.store.now(), "tests")
    assert world.task(key).waits == MARK


def test_a_hook_whose_type_is_gone_stops_no_end(world, host):
    """Its log says so."""
    [case] = claimed(host, world)
    Type.objects.filter(identifier=INDEX).delete()
    finish(host, case)
    record = world.log(case.instance)[-1]
    assert (record.kind, record.detail, record.level) == (Kind.HOOK, "", 30)
    world.store.types.register([registration(INDEX)])
    Type.objects.filter(identifier=HOOKED).update(hooks=[hooks.BOTH[0]])


def test_a_hook_of_a_live_instance_or_of_a_type_cannot_be_unregistered(world):
    plain = replace(registration(), hook_types=hooks.HOOK_TYPES)
    [key] = world.enqueue(type=plain, own=own_hooks(hooks.BOTH[0]), waits=MARK)
    with pytest.raises(TypeInUse, match="it is a hook of a live Instance"):
        world.store.types.unregister(ALERT)
    world.store.types.register([hooked()])
    with pytest.raises(TypeInUse, match=f"it is a hook of '{HOOKED}'"):
        world.store.types.unregister(INDEX)
    world.store.types.unregister(HOOKED)
    world.store.types.unregister(INDEX)
    world.store.types.register([registration(INDEX)])
    world.store.control.cancel([key])


# Several end an Instance at once, or hold locks (G1, G6, G11)


def together(*functions):
    """Call them at once; none of them may raise, as after a deadlock."""
    assert [each for each in at_once(*functions) if isinstance(each, Exception)] == []


@pytest.mark.django_db(transaction=True)
def test_a_batch_from_many_connections(world):
    """With others in it."""
    host = world.host(HOOKED, ONE)
    world.enqueue(5)
    world.enqueue(20, type=hooked())
    ends = [finish_of(world, case, who="host") for case in host.claim()]
    parts = ends[:15], ends[5:], ends[::2]
    together(*[partial(host.record, *part) for part in parts])
    ended = Instance.objects.filter(type__identifier__in=(HOOKED, ONE))
    assert set(ended.values_list("state", flat=True)) == {State.FINISHED}
    assert Instance.objects.filter(type__identifier=INDEX).count() == 20


@pytest.mark.django_db(transaction=True)
def test_several_operators_and_daemons_end_what_waits(world):
    """Cancelled, dropped and missed at once: whoever is first, there is one end and one hook."""
    now = world.store.now()
    keys = world.enqueue(20, type=hooked(), start_before=now + timedelta(seconds=1))
    Task.objects.update(start_before=now - timedelta(seconds=1))
    world.store.control.shut(scope(HOOKED), "drop")
    together(
        lambda: world.store.control.cancel(keys),
        lambda: world.store.control.cancel(keys[::-1]),
        world.store.gates.drop,
        world.store.claims.miss,
    )
    assert Instance.objects.filter(pk__in=keys, state=State.FAILED).count() == 20
    assert Instance.objects.filter(type__identifier=ALERT).count() == 20


@pytest.mark.django_db(transaction=True)
def test_an_attempt_is_expired_while_it_ends(world):
    host = world.host(HOOKED)
    for _ in range(3):
        world.enqueue(type=hooked(max_restarts=0))
        case, now = running(host), world.store.now()
        ends = [move_of(case, event, time=now) for event in (Event.FINISH, Event.EXPIRE)]
        together(*[partial(host.record, end) for end in ends])
        assert len(hooks_of(case.instance)) == 1


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_who_has_locked_types_or_a_task_delays_no_other_end(world):
    """G11: as somebody who is about to unregister the Type of a hook."""
    host = world.host(HOOKED, ONE)
    world.enqueue(6, type=hooked())
    cases = host.claim()
    moves = [finish_of(world, case, who="host") for case in cases]
    with transaction.atomic():
        list(Type.objects.select_for_update().filter(identifier__in=(ALERT, INDEX, HOOKED)))
        assert Thread(host.record, *moves[3:]).result() == []
    assert Instance.objects.filter(type__identifier=INDEX).count() == 3

    def deliver():
        world.store.limit_waiting(0.2)
        return world.store.records.deliver(moves[:3], daemon=host.uuid, careful=True)

    with transaction.atomic():
        Task.objects.select_for_update().get(pk=cases[1].instance)
        assert Thread(deliver).result().locked == {cases[1].instance}
    assert Instance.objects.filter(type__identifier=INDEX).count() == 5
    assert host.record(moves[1]) == []
