"""Bulk redrives with real daemons: the plan, the rate, the canary, and kills."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from atp import queue
from atp.deadletters import tasks
from atp.exceptions import UniqueTaken
from atp.models import ErrorGroup, Failure, Inputs, Instance, LogRecord, Task
from atp.states import Event, Reason, State
from atp.store import get_store
from tests.app.tasks_failing import CAUSES, cause, fail
from tests.helpers import DEADLINE, wait_for
from tests.store.world import World

from .causes import caught, failed_by, moves

pytestmark = pytest.mark.django_db(transaction=True)
TYPE = "failing.cause"
COUNT = 140
# A daemon that is killed is found lost so soon, where its lease is a time.
SOON = {"KILL_AFTER": 6, "LEASE": 9, "RENEW_EVERY": 1, "STATEMENT_TIMEOUT": 4}


@pytest.fixture
def mended(tmp_path):
    return tmp_path / "mended"


def enqueue_all(mended, count, **options):
    """Enqueue this many Instances that fail, the same number for each cause."""
    given = [{"number": n, "mended": str(mended), **options} for n in range(count)]
    cause.using(collection="even").enqueue_many(given[::2])
    cause.using(collection="odd").enqueue_many(given[1::2])


def fail_all(mended, count=COUNT, **options):
    """Let a daemon run Instances that fail; return after they are counted."""
    enqueue_all(mended, count, **options)
    with World(get_store(), mended.parent) as world:
        host = world.host(TYPE)
        number_of = {each.pk: each.value["number"] for each in Inputs.objects.all()}
        ends = []
        for each in host.claim(count):
            number = number_of[each.instance]
            ends += moves([each], failed_by(TYPE, caught(fail, number % CAUSES, number)))
        assert host.record(*ends) == []
        while Failure.objects.exists():
            world.store.errors.count()
        world.store.daemons.leave(host.uuid)
    assert counted(count)()


def counted(count):
    return lambda: sum(ErrorGroup.objects.values_list("count", flat=True)) >= count


def mend(mended, causes=range(CAUSES)):
    mended.write_text(" ".join(map(str, causes)))


def states():
    rows = Instance.objects.filter(type__identifier=TYPE)
    return Counter(rows.values_list("state", flat=True))


def test_bulk_redrive_watches_only_a_sample_of_its_instances(monkeypatch):
    """Otherwise each check would take longer, the more Instances were redriven."""
    monkeypatch.setattr(tasks, "MOST_WATCHED", 10)
    looked = []
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(tasks, "_Ends", lambda keys, **_: looked.append(keys) or Ends())
    monkeypatch.setattr(tasks.BulkOperation, "do", lambda self, portion: portion)
    monkeypatch.setattr(tasks.BulkOperation, "__init__", lambda self, *_: None)
    made = tasks.BulkRedrive(None, None, 0, None, "", 0, 0.5)
    for first in range(0, 100, 7):
        made.do(list(range(first, first + 7)))
    assert max(map(len, looked)) == 10


class Ends:
    """Stands in for the ends of canaries, none of which has happened yet."""

    finished, failed, ended, is_stuck = 0, (), (), False


def redrives():
    """Return the Instance's key, the time and the actor of each redrive, in order."""
    rows = LogRecord.objects.filter(kind=Event.REDRIVE).order_by("pk")
    return [(record.instance_id, record.time, record.who) for record in rows]


def test_bulk_redrive_carries_out_the_plan_of_its_dry_run(atpd, mended):
    """Seven causes with differing numbers form seven groups, which the dry run lists.

    One group is redriven at its rate. Then all others are redriven, after the canary has
    finished.
    """
    enqueue_all(mended, COUNT)
    daemon = atpd(processes=2)
    wait_for(counted(COUNT), what="all dead letters in their groups")
    groups, each = queue.error_groups(), COUNT // CAUSES
    assert [group.count for group in groups] == [each] * CAUSES
    before = LogRecord.objects.count()
    plan = queue.redrive_matching(type="failing.*", rate="100/s", dry_run=True)
    assert LogRecord.objects.count() == before
    assert plan.count == COUNT
    assert plan.by_error == {group.name: each for group in groups}
    assert plan.by_type == {TYPE: COUNT}
    assert plan.by_collection == {"even": COUNT // 2, "odd": COUNT // 2}
    assert plan.takes.total_seconds() == pytest.approx(COUNT / 100)
    mend(mended)
    group = queue.error_groups().get(title__startswith="NoElevation")
    one = queue.redrive_matching(error=group.name, rate="10/s", by="ops")
    assert one.wait(DEADLINE).state == State.FINISHED
    times = [time for _, time, _ in redrives()]
    assert len(times) == each
    assert (times[-1] - times[0]).total_seconds() >= 0.85 * (each - 1) / 10
    assert all(earlier <= later for earlier, later in pairwise(times))
    instance = queue.redrive_matching(type="failing.*", canary=20, by="ops")
    with pytest.raises(UniqueTaken, match=str(instance.uuid)) as caught:
        queue.redrive_matching(type="failing.*", rate="1/s", by="ann")
    assert caught.value.instance == instance
    assert instance.wait(DEADLINE).state == State.FINISHED
    wait_for(lambda: states() == {State.FINISHED: plan.count}, what="all redriven")
    done = redrives()
    assert len({key for key, _, _ in done}) == len(done) == plan.count
    assert {who for _, _, who in done[each:]} == {f"ops (redrive {instance.uuid})"}
    assert queue.response(instance).value == {"done": plan.count - each, "left": {}}
    daemon.stop()


def test_a_failing_canary_stops_the_bulk_redrive(atpd, mended):
    """Only half of the causes are fixed: 20 Instances are tried, the others stay unchanged."""
    fail_all(mended)
    mend(mended, range(CAUSES // 2))
    instance = queue.redrive_matching(type=TYPE, rate="50/s", canary=20, by="ops")
    daemon = atpd(processes=2)
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
    # When the canary has finished, the last ends are watched.
    mend(mended)
    instance = queue.redrive_matching(type=TYPE, rate="10/s", canary=7, by="ops")
    wait_for(lambda: len(redrives()) > 40, what="some more than the canary")
    mended.unlink()
    assert instance.wait(DEADLINE).reason == Reason.FATAL
    assert "of the last" in instance.log.last().message
    assert len(redrives()) < COUNT
    daemon.stop()


@pytest.mark.slow
def test_a_killed_bulk_redrive_goes_on_and_redrives_each_instance_once(atpd, mended, record):
    """The record of the handlers shows that each ran once more (G2)."""
    fail_all(mended, path=str(record))
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
    assert record.numbers("ran") == dict.fromkeys(range(COUNT), 1)
    own.stop()
    workers.stop()


def test_bulk_operations_can_be_paused_and_cancelled(atpd, mended):
    """Afterwards one bulk operation deletes dead letters and another cancels the rest."""
    fail_all(mended)
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
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    group = queue.error_groups().first()
    plan = queue.delete_matching(error=group, dry_run=True)
    before = states()[State.FAILED]
    assert queue.delete_matching(error=group, by="ops").wait(DEADLINE).state == State.FINISHED
    assert states()[State.FAILED] == before - plan.count
    cause.using(run_after=timedelta(hours=1)).enqueue_many([{"number": n} for n in range(30)])
    assert queue.cancel_matching(type=TYPE, dry_run=True).count == 30
    assert queue.cancel_matching(type=TYPE, by="ops").wait(DEADLINE).state == State.FINISHED
    cancelled = Instance.objects.filter(type__identifier=TYPE, reason=Reason.CANCELLED)
    assert cancelled.count() == 30
    daemon.stop()
