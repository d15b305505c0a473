"""What users learn of an engine that is away, lacks something, or cannot do what they ask for."""

import html

import pytest

from atp import queue
from atp.exceptions import IllegalTransition, NotPausable
from atp.models import Daemon, Instance, Task
from atp.operations.table import allowed_operations
from atp.reports import health, overview
from atp.states import Event
from tests.app import tasks_executors as types

ADDRESS = "tcp://10.0.0.7:8786"
KNOWN = {
    "error": "", "address": ADDRESS, "hosts": 2, "places": 8, "room": 8,
    "resources": {"GPU": 2.0}, "lacks": {},
}  # fmt: skip


@pytest.fixture
def follower(world):
    """A daemon of the executor; :func:`knows` sets what it knows of its engine."""
    queue.register_all()
    host = world.host(types.note.identifier, types.needs_gpu.identifier)
    Daemon.objects.update(labels={"executor": types.ENGINE}, engine=KNOWN)
    return host


def knows(**facts):
    # On a loaded machine the daemon would be late meanwhile.
    Daemon.objects.update(engine=KNOWN | facts, seen=overview.now())


def reasons(subject, **redacted):
    return [each for each in queue.explain(subject, **redacted).reasons if each.code != "ready"]


def problems():
    found = health.problems(overview.daemons(), overview.now())
    return [each for each in found if each.code.startswith("engine")]


def test_engine_that_is_away_is_named_and_its_address_only_to_who_may_see_daemons(follower):
    knows(error=f"no answer from {ADDRESS}")
    instance = types.note.enqueue(path="")
    [reason] = reasons(instance)
    assert reason.code == "engine-away"
    assert reason.sentence == (
        "The engine of the executor 'engine' is away, so no daemon claims anything for it: no "
        f"answer from {ADDRESS}."
    )
    assert reason.helps.label.startswith("Start the cluster of the executor 'engine'")
    assert queue.explain(instance).starts.why == "engine-away"
    [secret] = reasons(instance, daemons=False)
    assert ADDRESS not in secret.sentence + str(secret.facts)
    [problem] = problems()
    assert (problem.code, problem.error) == ("engine-away", f"no answer from {ADDRESS}")
    secret = problem.without_daemon()
    assert ADDRESS not in str(health.document(secret))
    assert secret.sentence.startswith("A daemon cannot reach the engine of the executor 'engine'")
    assert ADDRESS not in "".join(health.health().problems)


def test_what_the_cluster_lacks_is_named_to_work_that_waits_for_it(follower):
    """Health reports it only then."""
    knows(lacks={types.needs_gpu.identifier: "GPU=1. Did you mean 'gpu'?"})
    assert reasons(types.note.enqueue(path="")) == []
    assert problems() == []
    instance = types.needs_gpu.enqueue(path="")
    [reason], [problem] = reasons(instance), problems()
    assert reason.code == problem.code == "engine-lacks"
    told = "No host in the cluster of the executor 'engine' has GPU=1. Did you mean 'gpu'?"
    assert reason.sentence == told
    assert "'engine'" in reason.helps.label
    assert problem.types == (types.needs_gpu.identifier,)
    assert problem.sentence.endswith("has GPU=1. Did you mean 'gpu'?")
    knows()
    assert reasons(instance) == []


def test_cluster_without_hosts_is_named_if_work_is_due(follower):
    knows(hosts=0, places=0, room=0)
    assert problems() == []
    [reason] = reasons(types.needs_gpu.enqueue(path=""))
    assert (reason.code, reason.facts["hosts"]) == ("engine-lacks", 0)
    assert reason.sentence == "The cluster of the executor 'engine' has no host."
    [problem] = problems()
    assert problem.sentence == "Work is due, and the cluster of the executor 'engine' has no host."


def test_why_says_what_others_use_of_the_cluster(follower):
    """They use all places, or the attempts of this project use what a Type needs."""
    knows(room=0)
    instance = types.needs_gpu.enqueue(path="")
    [reason] = reasons(instance)
    assert reason.code == "engine-full"
    assert reason.sentence.endswith("other users of the cluster take 8 of its 8 places.")
    knows()
    types.needs_gpu.enqueue(path="")
    follower.claim()
    [reason] = reasons(types.needs_gpu.enqueue(path=""))
    assert (reason.code, reason.facts["used"]) == ("resources", {"GPU": 2})


def test_why_names_the_executor_that_no_daemon_runs(db):
    queue.register_all()
    [reason] = reasons(types.needs_gpu.enqueue(path=""))
    assert reason.code == "unserved"
    assert "executor 'engine'" in reason.helps.label
    assert reason.helps.command == "manage.py atpd --executor engine"


def test_daemon_whose_engine_is_away_has_no_green_badge(follower, admin_client):
    green = 'class="condition alive"'
    address = f"/atp/daemons/{follower.uuid}/"
    for each in ("/atp/", "/atp/daemons/", address, f"/atp/types/{types.note.identifier}/"):
        knows()
        assert green in html.unescape(admin_client.get(each).content.decode()), each
        knows(error="no answer")
        page = html.unescape(admin_client.get(each).content.decode())
        assert green not in page, each
        assert "alive, engine away" in page


def test_pause_and_stack_of_an_attempt_on_an_engine_are_refused(follower):
    instance = types.note.enqueue(path="")
    [case] = follower.claim()
    follower.move(case, Event.START)
    with pytest.raises(NotPausable, match="the executor 'engine' runs it"):
        queue.pause(instance)
    with pytest.raises(IllegalTransition, match="the executor 'engine' runs it"):
        queue.take_stack(instance)
    task = Task.objects.select_related("daemon").get()
    allowed = {each.name for each in allowed_operations(Instance.objects.get(), task)}
    assert "cancel" in allowed
    assert not allowed & {"pause", "stack"}
