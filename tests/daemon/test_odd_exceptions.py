"""Whatever an exception does when it is looked at, the attempt ends as its class says (G5)."""

import gc
import logging
import pickle

import psutil
import pytest

from atp.daemon.shared.outcome import Kind, move
from atp.daemon.worker import execution
from atp.models import LogRecord
from atp.states import Event, Reason, State
from atp.verbs.registry import registry
from atp.words.wording import headline
from tests.app import tasks_odd as types
from tests.samples import claimed, parameters

from .test_worker import executed, said, task, worker  # noqa: F401 (fixtures)

KINDS = {"fatal": Event.FAIL, "retry": Event.RETRY, "error": Event.RETRY, "defer": Event.DEFER}


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_types", dict(registry._types))


def run(name):
    """Run a handler that raises one of the table; returns the outcome and the calls."""
    calls = []

    @types.task_type("tests.odd")
    def handler(context):
        calls.append(context)
        types.throw(name)

    return execution.run(claimed(1, "tests.odd"), None), calls


@pytest.mark.parametrize("name", types.ODD)
def test_odd_exceptions(name):
    outcome, calls = run(name)
    assert outcome.kind is Kind(types.ODD[name][1])
    assert len(calls) == 1
    # It goes to a process that knows nothing of the class, and into a column.
    assert type(outcome.message) is str
    assert type(outcome.raised) is str
    assert outcome.message.strip()
    assert "\0" not in outcome.message + outcome.raised
    (outcome.message + outcome.raised).encode()
    assert len(outcome.message) < 10_000
    again = pickle.loads(pickle.dumps(outcome))
    last = move(again, claimed(1, "tests.odd")._replace(own=None, parameters=parameters()))
    assert last.event in (KINDS[outcome.kind.value], Event.FAIL)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("str raises", "Odd"),
        ("str recurses", "Recursing"),
        ("fatal, str raises", "Odd"),
        ("fatal, lying", "x"),
        ("a lying metaclass", "Lying: x"),
        ("cause raises", "Odd: x"),
        ("notes raise", "Odd: x"),
        ("surrogates", "ValueError: ??"),
    ],
)
def test_what_can_be_told_is_told(name, words):
    assert words in headline(run(name)[0].message)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("retry, alone in a group", 7),
        ("retry, no super", None),
        ("retry, after is for ever", None),
        ("defer, no super", 60),
        ("defer, after is nothing", 60),
        ("defer, str raises", 3),
    ],
)
def test_the_delay_that_it_asks_for(name, after):
    assert run(name)[0].after == after


def test_a_receiver_that_cannot_look_at_it():
    """A log handler that formats it fails; the attempt ends as it would."""

    class Looking(logging.Handler):
        def emit(self, record):
            str(record.exc_info[1])

    logger, handler = logging.getLogger("atp.worker"), Looking()
    logger.addHandler(handler)
    try:
        assert run("str exits")[0].kind is Kind.ERROR
    finally:
        logger.removeHandler(handler)


def test_in_a_task_group(worker):  # noqa: F811
    """A Retry alone in a group counts as what it is."""
    outcome = executed(worker, task("odd.in_a_task_group"))
    assert (outcome.kind, outcome.after, outcome.message) == (Kind.RETRY, 7, "later")


def test_an_error_alone_in_a_group_is_what_its_type_wants_no_retry_for():
    @types.task_type("tests.odd", fatal_on=ValueError)
    def handler(context):
        raise ExceptionGroup("x", [ExceptionGroup("y", [ValueError("x")])])

    assert execution.run(claimed(1, "tests.odd"), None).kind is Kind.LAST


@pytest.mark.parametrize("type", ["odd.weighs", "odd.weighs.together", "odd.weighs.coroutine"])
def test_an_attempt_that_raises_keeps_nothing(worker, type):  # noqa: F811
    """G5: memory is free when the attempt has ended, not when garbage is collected."""
    gc.collect()
    gc.disable()
    try:
        types.weights.clear()
        assert executed(worker, task(type)).kind is Kind.ERROR
        [weight] = types.weights
        assert weight() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("type", [types.weighs, types.weighs_together])
def test_a_worker_whose_attempts_raise_does_not_grow(atpd, type):
    """G5: what is resident after many failures is what is resident after one."""
    daemon = atpd(processes=1).ready()

    def resident(failures):
        for _ in range(failures):
            instance = type.enqueue(size=SIZE).wait(60)
            assert (instance.state, instance.reason) == (State.FAILED, Reason.ERROR)
        return psutil.Process(daemon.workers()[0]).memory_info().rss

    first = resident(1)
    assert resident(FAILURES) - first < 30 * MIB


MIB = 1024 * 1024
SIZE, FAILURES = 100 * MIB, 5
HANDFUL = {
    "str exits": Reason.ERROR,
    "everything raises": Reason.ERROR,
    "a lying metaclass": Reason.ERROR,
    "the module is odd": Reason.ERROR,
    "fatal, str raises": Reason.FATAL,
    "fatal, frozen": Reason.FATAL,
    "retry, no super": Reason.ERROR,
    "surrogates": Reason.ERROR,
}


def test_with_a_daemon(atpd, record):
    """One try for each that is allowed, no worker lost, and the reason in the log."""
    instances = {name: types.raises.enqueue(path=str(record), name=name) for name in HANDFUL}
    daemon = atpd(processes=1).ready()
    for name, instance in instances.items():
        instance.wait(60)
        tries = 1 if HANDFUL[name] is Reason.FATAL else 2
        assert (instance.state, instance.reason) == (State.FAILED, HANDFUL[name]), name
        assert [line["attempt"] for line in record.lines(name)] == [*range(1, tries + 1)]
        assert instance.restarts == 0
    assert LogRecord.objects.filter(kind="expire").count() == 0
    assert not daemon.facts("worker_died")
