"""The store contract under real concurrency: threads, each with its own connection."""

from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from django.db import transaction

from atp.exceptions import DuplicateIdentifier, GateChanged, LeaseLost, TypeInUse, UniqueTaken
from atp.models import Daemon, Gate, Instance, LogRecord, Task
from atp.payload.codec import Payload
from atp.states import Event, Reason, State
from atp.store.values import Submission

from ..helpers import Thread, at_once, remove_by_hand, wait_for
from . import hooks
from .broken import age, execute, put_back
from .internals import Mover
from .world import (
    HOUR,
    ONE,
    TWO,
    Case,
    Host,
    finish_of,
    is_anybody_waiting_for_a_lock,
    move_of,
    needs_row_locks,
    registration,
    scope,
)

pytestmark = pytest.mark.django_db(transaction=True)


CLAIMERS = 4


def test_two_claimers_never_take_the_same_task(world):
    """G3: together they take everything, and nothing twice."""
    keys = world.enqueue(40, type=ONE) + world.enqueue(40, type=TWO)
    hosts = [world.host() for _ in range(CLAIMERS)]

    def drain(host):
        found = []
        while claimed := host.claim(3):
            found += [each.instance for each in claimed]
        return found

    found = at_once(*[lambda host=host: drain(host) for host in hosts])
    assert sorted(key for part in found for key in part) == sorted(keys)
    assert set(Instance.objects.values_list("attempt", flat=True)) == {1}


def test_what_is_enqueued_after_a_gate_was_opened_is_not_dropped(world, monkeypatch):
    """It was opened while the Tasks behind another gate were dropped."""
    world.enqueue(type=ONE)
    world.store.types.register([registration(TWO)])
    for type in (ONE, TWO):
        world.store.control.shut(scope(type), "drop")
    write, made = Mover.write, []

    def beside_an_operator(mover):
        write(mover)
        if not made:
            made.append(None)
            world.store.control.open(scope(TWO))
            made[0] = world.enqueue(type=TWO)[0]

    monkeypatch.setattr(Mover, "write", beside_an_operator)
    assert world.store.gates.drop() == 1
    assert world.state(made[0]) == State.ACCEPTED


def test_many_operators_at_one_gate(world):
    """One wins, the others are told who; without a row of the gate too."""
    world.enqueue()

    def drop(who):
        return world.store.control.shut(scope(ONE), "drop", who=who, expected="open")

    outcomes = at_once(*[lambda who=str(n): drop(who) for n in range(CLAIMERS)])
    [won] = [outcome for outcome in outcomes if not isinstance(outcome, GateChanged)]
    told = {o.gate.who for o in outcomes if isinstance(o, GateChanged)}
    assert told == {won.who}
    assert Gate.objects.get().who == won.who
    opened = at_once(*[lambda: world.store.control.open(scope(ONE))] * CLAIMERS)
    assert sum(gate is not None for gate in opened) == 1


@pytest.mark.parametrize(
    ("option", "existing"),
    [
        *(("identifier", "raise"), ("identifier", "redrive")),
        *(("unique", "raise"), ("unique", "return"), ("unique", "debounce")),
    ],
)
def test_one_key_from_many_threads_is_one_instance(world, option, existing):
    """G13: one of them gets through, and the others are told by name, or given the same."""
    due = world.store.now() + HOUR if existing == "debounce" else None

    def enqueue():
        asked = [
            Submission(Payload("json", "{}"), existing=existing, due=due, **{option: name})
            for name in ("x", "y", *(["x"] if existing == "redrive" else []))
        ]
        return tuple(i.pk for i in world.store.enqueueing.enqueue(registration(), asked))

    outcomes = at_once(*[enqueue] * CLAIMERS)
    assert Instance.objects.count() == Task.objects.count() == 2
    made = {outcome for outcome in outcomes if isinstance(outcome, tuple)}
    error = DuplicateIdentifier if option == "identifier" else UniqueTaken
    refused = [outcome for outcome in outcomes if isinstance(outcome, error)]
    assert len(made) == 1, outcomes
    assert len(refused) == (CLAIMERS - 1 if existing == "raise" else 0), outcomes
    assert {error.instance.pk for error in refused} <= set(*made)


@needs_row_locks
@pytest.mark.parametrize("option", ["identifier", "unique"])
def test_two_enqueues_of_the_same_keys_in_different_orders_both_get_through(world, option):
    """G13: each waits for a key that the other has taken, and the database fails one of them."""

    def enqueue(*keys):
        asked = [
            Submission(inputs=Payload("json", "{}"), existing="return", **{option: key})
            for key in keys
        ]
        made = world.store.enqueueing.enqueue(registration(), asked)
        return dict(zip(keys, [each.pk for each in made], strict=True))

    world.store.types.register([registration()])
    with transaction.atomic():
        # Both take their first key, and wait here for the second.
        enqueue("middle")
        threads = [Thread(enqueue, "a", "middle", "z"), Thread(enqueue, "z", "middle", "a")]
        wait_for(partial(is_anybody_waiting_for_a_lock, count=2), what="both that wait")
        transaction.set_rollback(True)
    one, other = [thread.result() for thread in threads]
    assert one == other
    assert Instance.objects.count() == Task.objects.count() == 3


def test_a_purge_and_a_redrive_do_not_meet(world):
    """G12 and G1: it is either gone, or in the queue."""
    for _ in range(5):
        case = world.bring_to(State.FAILED, world.host())
        removed, refused = at_once(
            lambda key=case.instance: world.store.removal.purge(instances=[key]),
            lambda key=case.instance: world.as_anyone(Event.REDRIVE, key),
        )
        assert (removed, len(refused)) in [(1, 1), (0, 0)]
        assert Instance.objects.filter(pk=case.instance).exists() == (removed == 0)
        for claimed in world.host().claim():
            world.hosts[-1].move(claimed, Event.START, Event.FINISH)


def test_a_finish_and_a_sweep_do_not_meet(world):
    """G4 and G6: the result is either kept or refused, never both."""
    for _ in range(5):
        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        host.lose_lease()
        finish = move_of(case, Event.FINISH)
        refused, swept = at_once(lambda h=host, f=finish: h.record(f), world.store.daemons.sweep)
        finished = world.state(case.instance) == State.FINISHED
        assert (refused == []) == finished
        assert world.events(case.instance)[-1] == (Event.FINISH if finished else Event.EXPIRE)
        # It waits for nobody: what was about to end by itself is left to the next one.
        assert len(swept.daemons or world.store.daemons.sweep().daemons) == 1
        world.check()
        if not finished:
            world.as_anyone(Event.FAIL, case.instance, reason=Reason.CANCELLED)


def test_two_sweeps_expire_once(world, host):
    """G6: the second finds nothing left, and charges nothing."""
    cases = [world.bring_to(State.RUNNING, host) for _ in range(5)]
    host.lose_lease()
    swept = at_once(*[world.store.daemons.sweep] * CLAIMERS)
    assert sum(len(each.daemons) for each in swept) == 1
    for case in cases:
        assert world.get(case.instance).restarts == 1
        assert world.events(case.instance).count(Event.EXPIRE) == 1


@pytest.mark.slow
def test_two_scans_mend_once(world, host):
    """G6: of what several find, one says that it has mended it, and so does the log."""
    gone = world.host()
    key, held = gone.row.pk, world.bring_to(State.RUNNING, gone)
    ended = world.bring_to(State.FINISHED, host)
    lost = [world.bring_to(State.RUNNING, host) for _ in range(4)]
    keys = [case.instance for case in lost] + world.enqueue(4)
    Task.objects.filter(pk__in=keys).delete()
    put_back(world, ended, host)
    age(*keys, ended.instance)
    execute("DELETE FROM atp_daemon WHERE id = %s", key)
    scanned = at_once(*[lambda: world.store.upkeep.scan(who="a scan")] * CLAIMERS)
    mended = [finding for each in scanned for finding in each.findings if finding.instance]
    assert len(mended) == len(set(mended)) == 9
    assert all(finding.done for finding in mended)
    for key in keys:
        assert len([log for log in world.log(key) if log.who == "a scan"]) == 1
    assert LogRecord.objects.filter(subject__startswith="daemon:removed").count() == 1
    assert world.state(held.instance) == State.RUNNING
    assert world.store.upkeep.scan().findings == ()


@pytest.mark.slow
def test_scans_beside_a_queue_at_work_find_nothing(world):
    """No false alarm, whatever is on its way between two of its statements."""
    hosts = [world.host(name=f"h{n}") for n in range(2)]
    done = []

    def work(host):
        try:
            for _ in range(5):
                world.enqueue(3)
                for case in host.claim(3):
                    host.move(case, Event.START)
                    host.move(case, Event.RETRY, delay=timedelta(0))
                for case in host.claim(3):
                    host.move(case, Event.START, Event.FINISH)
        finally:
            done.append(host)

    def scan():
        found = []
        while len(done) < len(hosts):
            found += world.store.upkeep.scan().findings
        return found

    # A scan after the other keeps a small machine busy.
    workers = [lambda host=host: work(host) for host in hosts]
    outcomes = at_once(*workers, scan, scan, timeout=60)
    assert outcomes == [None, None, [], []]


def test_batches_that_overlap_do_not_deadlock(world, host):
    """Rows are locked in the order of their keys, whatever the order of the changes."""
    world.enqueue(30)
    starts = [move_of(case, Event.START) for case in host.claim()]
    outcomes = at_once(
        lambda: host.record(*starts),
        lambda: host.record(*reversed(starts)),
        lambda: host.record(*starts[::2], *starts[1::2]),
    )
    assert sorted(map(len, outcomes)) == [0, 30, 30]


@needs_row_locks
@pytest.mark.parametrize("kind", ["plain", "hooked"])
def test_ends_are_locked_in_the_order_of_their_keys(world, kind):
    """Two batches never wait for each other in a circle: here one waits for its first key."""
    type = hooks.hooked() if kind == "hooked" else registration(ONE)
    host = world.host(type.identifier)
    # Of these two keys a set has the last first.
    first, last = next(two for two in pairwise(world.enqueue(9, type=type)) if two[1] % 8 == 0)
    host.claim()
    ends = [finish_of(world, Case(key, 1), who="host") for key in (last, first)]
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=first)
        recording = Thread(host.record, *ends)
        wait_for(is_anybody_waiting_for_a_lock, what="a batch that waits for its first Task")
        assert Task.objects.select_for_update(skip_locked=True).filter(pk=last).exists()
    assert recording.result() == []


@needs_row_locks
@pytest.mark.parametrize("count", [1, 3])
def test_an_enqueue_and_an_unregistration_wait_for_each_other(world, count):
    """RFC 14: no Instance is of a Type that is gone, though no constraint keeps that."""
    world.store.types.register([registration()])
    with transaction.atomic():
        world.store.types.unregister(ONE)
        enqueue = Thread(lambda: world.enqueue(count))
        wait_for(is_anybody_waiting_for_a_lock, what="an enqueue that waits for its Type")
    assert len(enqueue.result()) == count
    remove_by_hand(Instance.objects.all())
    with transaction.atomic():
        world.enqueue()
        Thread(lambda: world.enqueue(2)).result()
        Thread(lambda: world.store.types.register([registration(max_restarts=7)])).result()
        unregister = Thread(lambda: world.store.types.unregister(ONE))
        wait_for(is_anybody_waiting_for_a_lock, what="an unregister that waits for the enqueue")
    with pytest.raises(TypeInUse):
        unregister.result()
    assert Instance.objects.filter(type__identifier=ONE).count() == 3


@needs_row_locks
@pytest.mark.parametrize("limit", [1, 3])
def test_a_claim_takes_what_was_handed_back_since_it_began(world, limit):
    """G9: it is not seen where it is now, and must not be left for the next look."""
    keys = world.enqueue(2)
    host = world.host()
    with transaction.atomic():
        # The claim has begun, and waits for its daemon's row.
        Daemon.objects.select_for_update().get(uuid=host.uuid)
        claim = Thread(lambda: host.claim(limit))
        wait_for(is_anybody_waiting_for_a_lock)
        Thread(lambda: Task.objects.filter(pk=keys[0]).update(request="")).result()
    assert [task.instance for task in claim.result()] == keys[:limit]


@needs_row_locks
def test_a_sweep_passes_by_a_daemon_that_is_taking_over(world, host, case):
    host.lose_lease()
    with transaction.atomic():
        new = world.host(old=host.uuid, holding={(case.instance, case.number)})
        assert Thread(world.store.daemons.sweep).result().daemons == ()
    assert new.holds() == {case.instance}


@needs_row_locks
def test_a_claim_and_the_end_of_its_identity_wait_for_each_other(world):
    """G3: a claim may still be on its way in the server when a new dispatcher takes over."""
    world.enqueue(3)
    host, new, newer = world.host(), Host(world), Host(world)
    with transaction.atomic():
        new.join(old=host.uuid)
        claim = Thread(host.claim)
        wait_for(is_anybody_waiting_for_a_lock, what="a claim that waits for the daemon's row")
    with pytest.raises(LeaseLost):
        claim.result()
    assert Task.objects.claimed().count() == 0
    with transaction.atomic():
        assert len(new.claim()) == 3
        join = Thread(lambda: newer.join(old=new.uuid))
        wait_for(is_anybody_waiting_for_a_lock, what="a join that waits for the claim")
    assert join.result().expired == 3
    assert Task.objects.claimed().count() == 0
