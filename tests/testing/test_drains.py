"""What a drain, ``work()`` and ``inline()`` run, and in which order."""

from datetime import timedelta

import pytest

from atp import Graph, queue, result, task_type
from atp.exceptions import InvalidInputs, QueueFull
from atp.verbs.registry import registry
from tests.app import tasks_testing as tasks
from tests.app.tasks import echo

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def declare(monkeypatch):
    """Return a function that declares a Type for one test."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(registry, "_former", dict(registry._former))

    def declare(handler, identifier="drains.own", **parameters):
        registry.remove("drains.own")
        made = task_type(identifier, **parameters)(handler)
        queue.register(made)
        return made

    yield declare
    registry._kept.clear()


def test_a_saga_is_undone_beside_many_live_graphs(atp, declare):
    for _ in range(100):
        with Graph() as waiting:
            waiting.add(echo.using(run_after=HOUR), name="later")
    with Graph() as g:
        first = g.add(echo, name="a", undo=echo)
        g.add(declare(fails), after=first)
    atp.drain(raises=False)
    g.row.refresh_from_db()
    assert g.row.undone is not None


def test_inline_runs_what_a_cancelled_node_frees(atp):
    with Graph() as g:
        first = g.add(echo.using(run_after=HOUR), name="a")
        g.add(echo, name="clean-up", after=first, on_failure="run")
    with atp.inline():
        queue.cancel(g.instance("a"))
        assert g.instance("clean-up").state == "FINISHED"


def facts(context):
    return [context.collection, context.priority, context.identifier]


def fails(context, number=0):
    raise ValueError(number)


def test_work_takes_the_options_of_using(atp, declare):
    own = declare(facts)
    run = atp.work(own.using(collection="c", priority=7, identifier="i"))
    assert run.response == ["c", 7, "i"]
    assert facts(atp.context(own.using(collection="c", priority=7))) == ["c", 7, None]
    run = atp.work(declare(fails, max_retries=3).using(max_retries=0), raises=False)
    assert (run.state, run.reason) == ("FAILED", "ERROR")


@pytest.mark.parametrize("verb", ["work", "assert_enqueued"])
def test_inputs_have_names(atp, verb):
    with pytest.raises(InvalidInputs, match="by name"):
        getattr(atp, verb)(tasks.group, inputs=[1])


def test_hooks_are_not_compared(atp):
    tasks.group.enqueue(name="a")
    with pytest.raises(InvalidInputs, match="no argument 'on_finished'"):
        atp.assert_enqueued(tasks.group, on_finished=tasks.group)


def test_what_waits_under_a_former_name_runs(atp, declare):
    declare(facts).enqueue()
    renamed = declare(facts, "drains.renamed", formerly=["drains.own"])
    assert len(atp.enqueued(renamed)) == 1
    assert [run.state for run in atp.drain(renamed)] == ["FINISHED"]


def test_a_drain_inside_inline_runs_all_itself(atp):
    with atp.inline():
        for name in "abc":
            tasks.group.using(run_after=HOUR).enqueue(name=name)
        atp.later(hours=2)
        runs = atp.drain()
        assert [run.state for run in runs] == ["FINISHED"] * 3
        assert atp.work(tasks.group, name="d").state == "FINISHED"


def test_what_a_drain_of_one_type_leaves_comes_after_it(atp):
    """Inside ``inline()`` each commit runs all that is due."""
    with atp.inline():
        tasks.chain.using(run_after=HOUR).enqueue(left=0)
        tasks.group.using(run_after=HOUR).enqueue(name="a")
        atp.later(hours=2)
        assert [run.type for run in atp.drain(tasks.chain)] == ["kit.chain"]
        assert atp.enqueued(tasks.group)[0].state == "FINISHED"


def test_errors_of_a_drain_inside_inline_are_its_own(atp, declare):
    own = declare(fails, max_retries=0)
    with atp.inline():
        for number in range(2):
            own.using(run_after=HOUR).enqueue(number)
        atp.later(hours=2)
        assert [run.state for run in atp.drain(raises=False)] == ["FAILED"] * 2


def test_the_output_of_a_node_whose_type_keeps_nothing(atp, declare):
    """The next node gets it all the same."""
    own = declare(lambda context, value: value, retention=0)
    with Graph() as graph:
        first = graph.add(own, value=42)
        graph.add(echo, value=result(first), after=first)
    runs = atp.drain()
    assert runs[-1].response == {"value": 42}


def test_a_queue_that_was_drained_is_not_full(atp, declare):
    own = declare(facts, max_waiting=2)
    own.enqueue_many([{}] * 2)
    with pytest.raises(QueueFull):
        own.enqueue()
    atp.drain()
    own.enqueue()


def test_the_state_after_an_attempt_that_somebody_redrives(atp, declare):
    own = declare(fails, max_retries=0)

    @task_type("drains.redrive")
    def redrive(context):
        queue.redrive(*atp.enqueued(own))

    queue.register(redrive)
    own.enqueue()
    redrive.enqueue()
    states = [(run.type, run.state) for run in atp.drain(raises=False)]
    assert states[0] == ("drains.own", "FAILED")
    assert len(states) == 3
