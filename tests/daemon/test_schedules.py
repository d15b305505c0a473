"""Daemons plan the slots of schedules, by the database's clock (G16)."""

from datetime import datetime, timedelta

import pytest

from atp import queue
from atp.models import Instance, Schedule, Slot
from atp.schedules.models import Outcome
from atp.states import State
from atp.store import get_store

from ..helpers import DEADLINE, wait_for

SECOND = timedelta(seconds=1)


def create(name, record, **given):
    given = {"every": SECOND, "overlap": "allow"} | given
    return queue.create_schedule(name, "daemon.slot", inputs={"path": str(record.path)}, **given)


def decided(name, count):
    return lambda: Slot.objects.filter(schedule__identifier=name).count() >= count


def no_gap(name):
    """Return the slots of a schedule, one behind the other."""
    found = list(Slot.objects.filter(schedule__identifier=name).order_by("at"))
    ends = [slot.until or slot.at for slot in found]
    assert [slot.at for slot in found[1:]] == [end + SECOND for end in ends[:-1]]
    return found


@pytest.mark.slow
def test_each_slot_is_enqueued_missed_or_paused_once(atpd, record):
    """G16: the daemon wakes for a slot; another plans when it is killed."""
    create("missed", record, missed="one")
    gone = queue.get_schedule("missed").next_at - timedelta(days=3)
    Schedule.objects.update(next_at=gone, due_at=gone)
    create("paused", record)
    queue.pause_schedule("paused", reason="storage moves")
    paused = get_store().now()
    old = create("seldom", record, every=timedelta(days=365))
    # 1,000 are kept of each schedule.
    now = old.next_at - timedelta(days=400)
    Slot.objects.bulk_create(
        Slot(schedule=old, at=now - number * SECOND, outcome=Outcome.MISSED, decided=now)
        for number in range(1010)
    )
    seldom = {"POLL_EVERY": 300.0, "SWEEP_EVERY": 300.0, "PURGE_EVERY": 0.2}
    first = atpd(processes=2, settings=seldom).ready()
    create("each.second", record)
    wait_for(decided("each.second", 3), DEADLINE)
    atpd(processes=2, settings={"PURGE_EVERY": 0.2}).ready()
    instances = [Instance.objects.get(pk=slot.instance_id) for slot in no_gap("each.second")[:2]]
    assert {each.wait(DEADLINE).state for each in instances} == {State.FINISHED}
    ran = {datetime.fromisoformat(line["slot"]) for line in record.lines("ran")}
    assert {slot.at for slot in no_gap("each.second")[:2]} <= ran
    first.destroy()
    count = Slot.objects.filter(schedule__identifier="each.second").count()
    wait_for(decided("each.second", count + 3), DEADLINE)
    of = Slot.objects.filter
    wait_for(of(schedule__identifier="missed", outcome=Outcome.ENQUEUED).exists, DEADLINE)
    missed = of(schedule__identifier="missed").get(outcome=Outcome.MISSED)
    assert (missed.at, missed.is_more) == (gone, True)
    in_pause = of(schedule__identifier="paused")
    wait_for(in_pause.filter(outcome=Outcome.PAUSED, count__gte=2).exists, DEADLINE)
    # A slot may have come before the pause.
    assert not in_pause.filter(at__gt=paused).exclude(outcome=Outcome.PAUSED).exists()
    queue.resume_schedule("paused")
    wait_for(in_pause.filter(outcome=Outcome.ENQUEUED).exists, DEADLINE)
    wait_for(lambda: of(schedule=old).count() == 1000, DEADLINE)
    assert Schedule.objects.filter(identifier="of-the-code").exists()
    queue.pause_schedule("each.second")
    slots = [slot for slot in no_gap("each.second") if slot.outcome == Outcome.ENQUEUED]
    assert len({slot.instance_id for slot in slots}) == len(slots)
