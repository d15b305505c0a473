"""Redriving all that matches: the plan, the rate, the canary, and the death of its daemon."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from atp import queue
from atp.deadletters import redriving
from atp.exceptions import UniqueTaken
from atp.models import ErrorGroup, Instance, LogRecord, Task
from atp.states import Event, Reason, State
from tests.app.tasks_failing import CAUSES, cause
from tests.helpers import DEADLINE, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
TYPE = "failing.cause"
COUNT = 140
# A daemon that is killed is found lost so soon, where its lease is a time.
SOON = {"KILL_AFTER": 6, "LEASE": 9, "RENEW_EVERY": 1, "STATEMENT_TIMEOUT": 4}


@pytest.fixture
def mended(tmp_path):
    return tmp_path / "mended"


def fail_all(atpd, mended, count=COUNT, **options):
    """Have so many Instances fail, equally for each cause; returns once they are counted."""
    given = [{"number": n, "mended": str(mended), **options} for n in range(count)]
    cause.using(collection="even").enqueue_many(given[::2])
    cause.using(collection="odd").enqueue_many(given[1::2])
    daemon = atpd(processes=2)
    wait_for(counted(count), what="all dead letters in their groups")
    daemon.stop()


def counted(count):
    return lambda: sum(ErrorGroup.objects.values_list("count", flat=True)) >= count


def mend(mended, causes=range(CAUSES)):
    mended.write_text(" ".join(map(str, causes)))


def states():
    rows = Instance.objects.filter(type__identifier=TYPE)
    return Counter(rows.values_list("state", flat=True))


def test_it_waits_for_the_ends_of_a_sample(monkeypatch):
    """Or each look would take the longer the more is redriven."""
    monkeypatch.setattr(redriving, "MOST_WATCHED", 10)
    looked = []
    monkeypatch.setattr(redriving, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(redriving, "_Ends", lambda keys, **_: looked.append(keys) or Ends())
    monkeypatch.setattr(redriving.CarryingOut, "do", lambda self, portion: portion)
    monkeypatch.setattr(redriving.CarryingOut, "__init__", lambda self, *_: None)
    made = redriving.Redriving(None, None, 0, None, "", 0, 0.5)
    for first in range(0, 100, 7):
        made.do(list(range(first, first + 7)))
    assert max(map(len, looked)) == 10


class Ends:
    """None of them has ended, and not all of them wait."""

    finished, failed, ended, is_stuck = 0, (), (), False


def redrives():
    """The times at which Instances were redriven, by key."""
    rows = LogRecord.objects.filter(kind=Event.REDRIVE).order_by("pk")
    return [(record.instance_id, record.time, record.who) for record in rows]


def test_causes_become_groups_and_the_plan_is_what_is_done(atpd, mended):
    """Seven causes, with differing numbers, are seven groups; a dry run tells what is done."""
    fail_all(atpd, mended)
    groups = queue.error_groups()
    assert [group.count for group in groups] == [COUNT // CAUSES] * CAUSES
    before = LogRecord.objects.count()
    plan = queue.redrive_matching(type="failing.*", rate="100/s", dry_run=True)
    assert LogRecord.objects.count() == before
    assert plan.count == COUNT
    assert plan.by_error == {group.name: COUNT // CAUSES for group in groups}
    assert plan.by_type == {TYPE: COUNT}
    assert plan.by_collection == {"even": COUNT // 2, "odd": COUNT // 2}
    assert plan.takes.total_seconds() == pytest.approx(COUNT / 100)
    mend(mended)
    instance = queue.redrive_matching(type="failing.*", by="ops")
    daemon = atpd(processes=1)
    assert instance.wait(DEADLINE).state == State.FINISHED
    wait_for(lambda: states() == {State.FINISHED: plan.count}, what="all redriven")
    done = redrives()
    assert len({key for key, _, _ in done}) == len(done) == plan.count
    assert {who for _, _, who in done} == {f"ops (redrive {instance.uuid})"}
    assert queue.response(instance).value == {"done": plan.count, "left": {}}
    daemon.stop()


def test_of_one_group_only_that_is_redriven_at_the_rate(atpd, mended):
    """At 20/s: never more than a tenth above it; a loaded machine may be slower."""
    fail_all(atpd, mended, 7 * 60)
    mend(mended)
    group = queue.error_groups().get(title__startswith="NoElevation")
    instance = queue.redrive_matching(error=group.name, rate="20/s", by="ops")
    daemon = atpd(processes=2)
    assert instance.wait(DEADLINE).state == State.FINISHED
    times = [time for _, time, _ in redrives()]
    assert len(times) == 60
    took = (times[-1] - times[0]).total_seconds()
    assert took >= 0.9 * 59 / 20
    assert all(earlier <= later for earlier, later in pairwise(times))
    daemon.stop()


def test_the_canary_stops_it_and_leaves_the_others(atpd, mended):
    """Half of the fault is mended: 20 are tried, the others are as they were."""
    fail_all(atpd, mended)
    mend(mended, range(CAUSES // 2))
    instance = queue.redrive_matching(type=TYPE, rate="50/s", canary=20, by="ops")
    daemon = atpd(processes=1)
    instance.wait(DEADLINE)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.FATAL)
    tried = {key for key, _, _ in redrives()}
    assert len(tried) == 20
    others = Instance.objects.filter(type__identifier=TYPE).exclude(pk__in=tried)
    assert set(others.values_list("state", "attempt")) == {(State.FAILED, 1)}
    lanes = Counter(Instance.objects.filter(pk__in=tried).values_list("collection", flat=True))
    assert lanes == {"even": 10, "odd": 10}
    message = instance.log.last().message
    assert "canaries FAILED" in message
    assert any(group.name in message for group in queue.error_groups())
    daemon.stop()


def test_it_goes_on_when_the_canary_has_finished(atpd, mended):
    fail_all(atpd, mended)
    mend(mended)
    instance = queue.redrive_matching(type=TYPE, canary=20, by="ops")
    daemon = atpd(processes=1)
    assert instance.wait(DEADLINE).state == State.FINISHED
    wait_for(lambda: states() == {State.FINISHED: COUNT}, what="all redriven")
    assert len(redrives()) == COUNT
    daemon.stop()


def test_it_stops_when_what_was_mended_breaks_again(atpd, mended):
    """The canary has finished; then the last ends are watched."""
    fail_all(atpd, mended)
    mend(mended)
    instance = queue.redrive_matching(type=TYPE, rate="10/s", canary=7, by="ops")
    daemon = atpd(processes=2)
    wait_for(lambda: len(redrives()) > 20, what="some more than the canary")
    mended.unlink()
    assert instance.wait(DEADLINE).reason == Reason.FATAL
    assert "of the last" in instance.log.last().message
    assert len(redrives()) < COUNT
    daemon.stop()


def test_its_daemon_is_killed_and_each_is_redriven_once(atpd, mended, record):
    """By the record of the handlers: each ran twice, once to fail and once to finish (G2)."""
    fail_all(atpd, mended, path=str(record))
    mend(mended)
    instance = queue.redrive_matching(type=TYPE, rate="40/s", by="ops")
    workers = atpd("--exclude", "atp.*", processes=1)
    for _ in range(2):
        own = atpd("--type", "atp.redrive", processes=1, settings=SOON)
        before = len(redrives())
        wait_for(
            lambda b=before: len(redrives()) > b + 10,
            what="some more redriven",
        )
        own.destroy()
    own = atpd("--type", "atp.redrive", processes=1)
    assert instance.wait(DEADLINE).state == State.FINISHED
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    assert set(Counter(key for key, _, _ in redrives()).values()) == {1}
    assert record.numbers("ran") == dict.fromkeys(range(COUNT), 2)
    own.stop()
    workers.stop()


def test_it_is_paused_and_cancelled_like_any_other(atpd, mended):
    fail_all(atpd, mended)
    mend(mended)
    instance = queue.redrive_matching(type=TYPE, rate="5/s", by="ops")
    daemon = atpd(processes=2)
    wait_for(lambda: redrives(), what="the first")
    wait_for(lambda: queue.get(instance.uuid).state == State.RUNNING, what="its start")
    queue.pause(instance)
    wait_for(lambda: queue.get(instance.uuid).state == State.PAUSED, what="a pause")
    done = len(redrives())
    queue.cancel(instance)
    assert instance.wait(DEADLINE).reason == Reason.CANCELLED
    assert len(redrives()) == done < COUNT
    daemon.stop()


def test_a_live_one_of_the_same_filter_is_in_the_way(atpd, mended):
    fail_all(atpd, mended, 14)
    first = queue.redrive_matching(type=TYPE, by="ops")
    with pytest.raises(UniqueTaken, match=str(first.uuid)) as caught:
        queue.redrive_matching(type=TYPE, rate="1/s", by="ann")
    assert caught.value.instance == first
    assert queue.redrive_matching(type=TYPE, collection="odd").pk != first.pk


def test_all_that_matches_is_deleted(atpd, mended):
    fail_all(atpd, mended, 70)
    group = queue.error_groups().first()
    instance = queue.delete_matching(error=group, by="ops")
    daemon = atpd(processes=1)
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert states() == {State.FAILED: 60}
    daemon.stop()


def test_all_that_matches_is_cancelled(atpd):
    cause.using(run_after=timedelta(hours=1)).enqueue_many([{"number": n} for n in range(30)])
    plan = queue.cancel_matching(type=TYPE, dry_run=True)
    instance = queue.cancel_matching(type=TYPE, by="ops")
    daemon = atpd(processes=1)
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert plan.count == 30
    cancelled = Instance.objects.filter(reason=Reason.CANCELLED)
    assert cancelled.count() == 30
    daemon.stop()
