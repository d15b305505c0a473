"""Every state × every event × everybody who could cause it."""

import logging
from datetime import timedelta
from itertools import product

from atp import states
from atp.models import LogRecord
from atp.states import CLAIMED, TERMINAL, Actor, Event, Reason, Row, State
from atp.store.values import Move

WHO = {"holder": Actor.HOLDER, "anyone": Actor.ANYONE, "stranger": None}


def test_exactly_the_moves_of_the_table_are_accepted(world):
    """G6: what the table has is done and logged once; anything else writes nothing."""
    holder, stranger = world.host(name="holder"), world.host(name="stranger")
    daemons = {"holder": holder.uuid, "anyone": None, "stranger": stranger.uuid}
    for state in State:
        with world.case(state):
            case = world.bring_to(state, holder)
            before = world.snapshot()
            due = getattr(world.task(case.instance), "due_at", None)
            for event, who in product(Event, WHO):
                with world.case((event, who)):
                    change = change_of(world, case, event)
                    refused = world.store.record([change], daemon=daemons[who])
                    row = states.transition(event, state)
                    if row is None or WHO[who] not in row.actors:
                        assert refused == [change]
                        assert world.snapshot() == before
                    else:
                        assert refused == []
                        check_move(world, row, change, before, due, holder)


def change_of(world, case, event):
    return Move(
        event=event,
        instance=case.instance,
        attempt=case.attempt,
        time=world.store.now() - timedelta(seconds=3),
        who="somebody",
        message="for the test",
        level=logging.ERROR,
        reason=Reason.CANCELLED if event == Event.FAIL else "",
        delay=timedelta(minutes=1) if event in (Event.RETRY, Event.DEFER) else None,
    )


def check_move(world, row, change, before, due, holder):
    [was] = before["Instance"]
    instance = world.get(change.instance)
    assert instance.state == row.target
    for counter in ("attempt", "restarts", "retries", "lost"):
        expected = was[counter] + (counter in row.counts)
        assert getattr(instance, counter) == (0 if counter in row.resets else expected)
    assert instance.reason == change.reason
    assert instance.finished == (change.time if row.target in TERMINAL else None)
    if row.event == Event.START:
        assert instance.started == change.time
    check_task(world, row, change, due, holder)
    added = LogRecord.objects.exclude(pk__in=[record["id"] for record in before["LogRecord"]])
    [record] = added
    assert (record.instance_id, record.event, record.state) == (
        change.instance,
        row.event,
        row.target,
    )
    assert (record.time, record.attempt, record.level) == (
        change.time,
        instance.attempt,
        logging.ERROR,
    )
    assert (record.who, record.message) == ("somebody", "for the test")


def check_task(world, row, change, due, holder):
    task = world.task(change.instance)
    if row.row is Row.DELETED:
        assert task is None
        return
    assert task.attempt == world.get(change.instance).attempt
    assert (task.daemon == holder.row) == (row.target in CLAIMED)
    if change.delay is not None:
        assert task.due_at > world.store.now() + timedelta(seconds=50)
    elif row.row is not Row.CREATED:
        assert task.due_at == due


def test_a_claim_takes_what_is_accepted_and_nothing_else(world):
    """G6 and G3: what is held or over is not claimed again."""
    holder, other = world.host(name="holder"), world.host(name="other")
    cases = {state: world.bring_to(state, holder) for state in State if state != State.ACCEPTED}
    assert other.claim() == []
    waiting = world.bring_to(State.ACCEPTED, holder)
    assert [claimed.instance for claimed in other.claim()] == [waiting.instance]
    assert {state: world.state(case.instance) for state, case in cases.items()} == dict(
        zip(cases, cases, strict=True)
    )
