"""Handlers that are coroutine functions, run by real daemons."""

from django.contrib.auth.models import Group

from atp import messages, queue
from atp.states import Reason, State
from tests.app import tasks_async as types
from tests.app import tasks_daemon
from tests.helpers import DEADLINE

from ..nonsense import tells
from .harness import Record
from .test_cancel import assert_cancelled, cancel, running
from .test_running import drain


def test_what_it_returns_and_raises(atpd, record):
    """What it says while it runs is sent as that of any handler. G5: its worker goes on.

    The asynchronous ORM and steps run in the main thread, so their connections are the worker's
    own, which puts them back. G7: a transactional one is all or nothing.
    """
    gather, orm = types.gather.enqueue(count=4), types.orm.enqueue(name="readers")
    good = types.together.enqueue(name="kept")
    bad = types.together.enqueue(name="rolled back", fails=True)
    steps = types.steps.enqueue(path=str(record))
    raised = {
        "retry": "turned away",
        "raise": "LookupError: went wrong",
        "exit": "SystemExit: 3",
        "cancels itself": "CancelledError",
    }
    failed = {types.raises.enqueue(how=how): words for how, words in raised.items()}
    late = types.sleep.using(timeout=0.3).enqueue(path=str(record))
    daemon = drain(atpd, processes=1)
    assert queue.response(gather.wait(0)).value == {"sum": 6}
    assert "gathered" in [row.message for row in gather.log]
    assert queue.response(orm.wait(0)).value == {
        "made": "readers",
        "found": 1,
        "orm in main": True,
        "own": False,
    }
    assert queue.response(good.wait(0)).value == {"in transaction": True}
    assert bad.wait(0).reason == Reason.FATAL
    assert set(Group.objects.values_list("name", flat=True)) == {"readers", "kept"}
    assert queue.response(steps.wait(0)).value == {"charged": 1}
    assert len(record.lines("charged")) == 1
    for instance, words in failed.items():
        assert (instance.wait(0).reason, instance.retries) == (Reason.ERROR, 1)
        assert words in instance.log.transitions().last().message
    assert not daemon.facts("worker_died")
    assert (late.wait(0).reason, late.restarts) == (Reason.STALE, 4)


def test_one_that_is_cancelled_ends(atpd, tmp_path):
    """Within its grace, where it awaits or looks; what does neither is killed after that.

    One that is released goes back.
    """
    names = ["sleep", "stubborn", "looks"]
    records = {name: Record(tmp_path / name) for name in names}
    instances = {name: getattr(types, name).enqueue(path=str(records[name])) for name in names}
    daemon = atpd(processes=3)
    for record in records.values():
        record.wait_for("start")
    running(instances["looks"])
    queue.release(instances["looks"])
    records["looks"].wait_for("start", 2)
    instances["looks"].refresh_from_db()
    assert (instances["looks"].retries, instances["looks"].lost) == (0, 0)
    for name, instance in instances.items():
        cancel(instance)
        assert_cancelled(instance, attempt=2 if name == "looks" else 1)
        last = instance.log.transitions().last().message
        is_killed = tells(last, messages.killed_after_grace(0.5))
        assert is_killed == (name == "stubborn"), name
    assert len(records["sleep"].lines("cleaned up")) == 1
    assert len(records["stubborn"].lines("cancelled")) == 1
    after = tasks_daemon.note.enqueue(path=str(tmp_path / "after"))
    assert after.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0
