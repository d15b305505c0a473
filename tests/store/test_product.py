"""Every state × every event × everybody who could cause it."""

import logging
from datetime import timedelta
from itertools import product

import pytest

from atp import states
from atp.models import LogRecord
from atp.states import CLAIMED, TERMINAL, Actor, Event, Reason, Row, State

from .world import move_of

WHO = {"holder": Actor.HOLDER, "anyone": Actor.ANYONE, "stranger": None}


@pytest.mark.slow
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
                    refused = world.store.records.record([change], daemon=daemons[who])
                    row = states.transition(event, state)
                    if row is None or WHO[who] not in row.actors:
                        assert refused == [change]
                        assert world.snapshot() == before
                    else:
                        assert refused == []
                        check_move(world, row, change, before, due, holder)


def change_of(world, case, event):
    return move_of(
        case,
        event,
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
    task = world.task(change.instance)
    if row.row is Row.DELETED:
        assert task is None
    else:
        assert task.attempt == instance.attempt
        assert (task.daemon == holder.row) == (row.target in CLAIMED)
        if change.delay is not None:
            assert task.due_at > world.store.now() + timedelta(seconds=50)
        elif row.row is not Row.CREATED:
            assert task.due_at == due
    known = [record["id"] for record in before["LogRecord"]]
    [record] = LogRecord.objects.exclude(pk__in=known)
    assert (record.instance_id, record.event, record.state, record.time, record.attempt) == (
        *(change.instance, row.event, row.target, change.time, instance.attempt),
    )
    assert (record.level, record.who, record.message) == (logging.ERROR, "somebody", "for the test")
