"""Daemons plan the slots of schedules, by the database's clock (G16)."""

from datetime import datetime, timedelta

from atp import queue
from atp.models import Instance, Schedule, Slot
from atp.rows.schedule import Outcome
from atp.states import Reason, State
from atp.store import get_store

from ..helpers import DEADLINE, wait_for

SECOND = timedelta(seconds=1)
# So seldom an idle daemon looks by itself that a test does not see it.
SELDOM = {"POLL_EVERY": 300.0, "SWEEP_EVERY": 300.0}


def create(name, record, **given):
    given = {"every": SECOND, "overlap": "allow"} | given
    return queue.create_schedule(name, "daemon.slot", inputs={"path": str(record.path)}, **given)


def decided(count):
    return lambda: Slot.objects.count() >= count


def no_gap(name):
    """Return the slots of a schedule, one behind the other."""
    found = list(Slot.objects.filter(schedule__identifier=name).order_by("at"))
    ends = [slot.until or slot.at for slot in found]
    assert [slot.at for slot in found[1:]] == [end + SECOND for end in ends[:-1]]
    return found


def test_each_slot_is_enqueued_and_runs(atpd, record):
    """G16: and the handler is given its slot."""
    atpd(processes=2).ready()
    create("each.second", record)
    wait_for(decided(3), DEADLINE)
    found = no_gap("each.second")
    assert {slot.outcome for slot in found} == {Outcome.ENQUEUED}
    instance = queue.get(Instance.objects.get(pk=found[0].instance_id).uuid)
    assert instance.wait(DEADLINE).state == State.FINISHED
    ran = {datetime.fromisoformat(line["slot"]) for line in record.lines("ran")}
    assert found[0].at in ran


def test_a_daemon_wakes_for_a_slot(atpd, record):
    """It does not wait for its next look, which may be far away."""
    atpd(processes=1, settings=SELDOM).ready()
    create("each.second", record)
    wait_for(decided(2), DEADLINE)


def test_whoever_lives_plans(atpd, record):
    """G16: a daemon is killed in the middle of it; no slot is lost, none is there twice."""
    daemons = [atpd(processes=1) for _ in range(2)]
    for daemon in daemons:
        daemon.ready()
    create("each.second", record)
    wait_for(decided(2), DEADLINE)
    daemons[0].destroy()
    count = Slot.objects.count()
    wait_for(decided(count + 3), DEADLINE)
    queue.pause_schedule("each.second")
    found = no_gap("each.second")
    enqueued = [slot for slot in found if slot.outcome == Outcome.ENQUEUED]
    assert Instance.objects.count() == len(enqueued)


def one_at_a_time(record):
    """Whether each begins after the end of the one before; returns the slots in that order."""
    begun = {line["instance"] for line in record.lines("begin")}
    lines = [line for line in record.lines() if line["instance"] in begun]
    assert [line["event"] for line in lines] == ["begin", "end"] * (len(lines) // 2) + (
        ["begin"] if len(lines) % 2 else []
    )
    return [line["slot"] for line in lines if line["event"] == "begin"]


def create_long(record, overlap, seconds, **given):
    inputs = {"path": str(record.path), "seconds": seconds}
    return queue.create_schedule(
        "each.second", "daemon.long_slot", every=SECOND, overlap=overlap, inputs=inputs, **given
    )


def test_a_slot_waits_for_the_end_of_the_one_before(atpd, record):
    """G17: with queue, and they run in their order."""
    atpd(processes=3).ready()
    create_long(record, "queue", 1.5, most=3)
    wait_for(lambda: len(record.lines("end")) >= 4, DEADLINE)
    queue.pause_schedule("each.second")
    slots = one_at_a_time(record)
    assert slots == sorted(slots)


def test_a_slot_cancels_the_one_before(atpd, record):
    """G17: with cancel; it begins when that has ended."""
    atpd(processes=3).ready()
    create_long(record, "cancel", 600)
    wait_for(lambda: len(record.lines("begin")) >= 3, DEADLINE)
    queue.pause_schedule("each.second")
    slots = one_at_a_time(record)
    assert slots == sorted(slots)
    ended = {line["instance"] for line in record.lines("end")}
    reasons = Instance.objects.filter(uuid__in=ended).values_list("state", "reason")
    assert set(reasons) <= {(State.FAILED, Reason.CANCELLED), (State.RUNNING, "")}
    assert (State.FAILED, Reason.CANCELLED) in set(reasons)


def test_what_was_missed_is_told(atpd, record):
    """G16: while no daemon was there."""
    create("each.second", record, missed="one")
    gone = queue.get_schedule("each.second").next_at - timedelta(days=3)
    Schedule.objects.update(next_at=gone, due_at=gone)
    atpd(processes=1).ready()
    wait_for(lambda: Slot.objects.filter(outcome=Outcome.ENQUEUED).exists(), DEADLINE)
    missed = Slot.objects.get(outcome=Outcome.MISSED)
    assert (missed.at, missed.is_more) == (gone, True)


def test_in_a_pause_slots_pass(atpd, record):
    create("each.second", record)
    queue.pause_schedule("each.second", reason="storage moves")
    paused = get_store().now()
    atpd(processes=1).ready()
    wait_for(lambda: Slot.objects.filter(outcome=Outcome.PAUSED, count__gte=2).exists(), DEADLINE)
    # A slot may have come before the pause.
    later = Slot.objects.filter(at__gt=paused).exclude(outcome=Outcome.PAUSED)
    assert not later.exists()
    queue.resume_schedule("each.second")
    wait_for(lambda: Slot.objects.filter(outcome=Outcome.ENQUEUED).exists(), DEADLINE)


def test_old_slots_are_removed(atpd, record):
    """1,000 are kept of each schedule."""
    row = create("seldom", record, every=timedelta(days=365))
    now = row.next_at - timedelta(days=400)
    Slot.objects.bulk_create(
        Slot(schedule=row, at=now - number * SECOND, outcome=Outcome.MISSED, decided=now)
        for number in range(1010)
    )
    atpd(processes=1, settings={"PURGE_EVERY": 0.2}).ready()
    wait_for(lambda: Slot.objects.count() == 1000, DEADLINE)


def test_what_code_declares_is_there_when_a_daemon_has_registered(atpd, record):
    atpd(processes=1).ready()
    wait_for(lambda: Schedule.objects.filter(identifier="of-the-code").exists(), DEADLINE)
