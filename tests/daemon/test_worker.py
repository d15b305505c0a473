"""What surrounds a handler: error reporters, logging, interruption; and how its attempt ends."""

import gc
import logging
import logging.config
import os
import pickle
import signal
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core.signals import got_request_exception
from django.db import OperationalError, connection
from django.db.backends.signals import connection_created

from atp import Interrupted, messages, queue, signals
from atp.models import Type, read_signature
from atp.operations.registry import registry
from atp.states import Event, Reason
from atp.text import headline
from tests.app import tasks_odd
from tests.samples import claimed, parameters

from ..nonsense import is_made_by, tells
from . import inside


@pytest.fixture
def said():
    """A channel that keeps what the worker says."""
    messages = []

    def send(message, wait=True):
        messages.append(message)

    return SimpleNamespace(messages=messages, send=send)


@pytest.fixture
def worker(said, tmp_path, transactional_db, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers])
    (tmp_path / "worker-0").mkdir()
    folders = SimpleNamespace(scratch=tmp_path)
    shared = inside.Page(1), inside.Options(processes=1), folders, inside.StackFiles(1)
    made = inside.Worker(0, said, None, inside.Inherited(*shared))
    logging.root.addHandler(made._capture)
    return made


def task(type, inputs="{}"):
    return claimed(1, type, data=inputs)


def executed(worker, claimed):
    """Perform a task, and return its outcome as the dispatcher hears it."""
    worker._perform(claimed)
    [record] = worker._ring.read(worker._ring.written)
    return inside.unpacked_end(record)[-1]


def test_end_that_is_too_large_for_the_ring_goes_through_the_channel(worker, said):
    """G1."""
    worker._perform(task("daemon.error", f'{{"words":"{"x" * 7000}"}}'))
    [ended] = said.messages
    assert isinstance(ended, inside.Ended)
    assert "x" * 7000 in ended.outcome.message
    for size in (100, 1):
        while worker._ring.write(b"x" * size):
            pass
    worker._perform(task("daemon.noop"))
    assert isinstance(said.messages[1], inside.Ended)
    assert said.messages[1][:2] == (1, 1)


def test_attempt_that_waits_to_report_its_end_does_not_time_out(worker, said):
    """G9: nobody reads from it while its Instance is locked."""
    deadlines = []
    said.send = lambda message, wait=True: deadlines.append(worker._page.read(0).deadline)
    worker._ring = SimpleNamespace(write=lambda record: False)
    limited = parameters("daemon.noop", timeout=timedelta(minutes=1))
    worker._perform(claimed(1, "daemon.noop", parameters=limited))
    assert deadlines[-1] == float("inf")


@pytest.mark.parametrize("error", [BlockingIOError, inside.Closed])
def test_worker_that_cannot_announce_its_retirement_reports_the_end(
    worker, said, error, monkeypatch
):
    """G1: a handler may have closed the channel."""
    worker._options = replace(worker._options, max_tasks_per_worker=1)

    def refuse(message, wait=True):
        assert not wait
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(said, "send", refuse)
        assert executed(worker, task("daemon.noop")) is None
        assert worker._is_to_retire()
    assert worker._is_to_retire()
    [retiring] = said.messages
    assert isinstance(retiring, inside.Retiring)


def test_error_reporters_and_signals_see_exceptions(worker, caplog):
    """An exception in a receiver harms nothing."""
    seen, around = [], []

    def reporter(sender, request, **kwargs):
        seen.append(sys.exc_info()[1])
        raise RuntimeError("a reporter that fails")

    def started(context, **kwargs):
        around.append(("started", context.type))

    def ended(context, exception, outcome, **kwargs):
        around.append(("ended", str(exception), outcome.kind))

    got_request_exception.connect(reporter)
    signals.handler_started.connect(started)
    signals.handler_ended.connect(ended)
    try:
        outcome = executed(worker, task("daemon.error", '{"words":"look at this"}'))
    finally:
        got_request_exception.disconnect(reporter)
    assert (outcome.kind, outcome.raised) == (inside.Kind.ERROR, "builtins.ValueError")
    assert around == [("started", "daemon.error"), ("ended", "look at this", inside.Kind.ERROR)]
    # Fatal, as Retry, is a word of the handler, no accident.
    assert executed(worker, task("daemon.fatal")).raised == "atp.exceptions.Fatal"
    assert [str(error) for error in seen] == ["look at this"]
    [record] = [r for r in caplog.records if r.name == "atp.worker"]
    assert str(record.exc_info[1]) == "look at this"


def test_incompatible_inputs_are_adapted_or_left_to_other_daemons(worker, settings, monkeypatch):
    """The handler is not entered, and nothing is charged."""
    settings.ATP = settings.ATP | {"RELEASE": "3f2a"}
    outcome = executed(worker, task("daemon.error", '{"words":"x","nothing":2}'))
    assert outcome.kind is inside.Kind.MISFIT
    assert outcome.signature == registry.get("daemon.error").fingerprint
    words = "release 3f2a does not take its inputs: there is no argument 'nothing'"
    assert is_made_by(outcome.message, messages.incompatible_inputs, words)

    declared = replace(registry.get("daemon.error"), adapters=[])
    monkeypatch.setattr(registry, "_types", {"daemon.error": declared})

    @declared.adapt
    def _(inputs):
        return {"words": inputs.pop("text")}

    outcome = executed(worker, task("daemon.error", '{"text":"look at this"}'))
    assert outcome.kind is inside.Kind.ERROR
    assert "look at this" in outcome.message
    outcome = executed(worker, task("daemon.error", '{"nothing":2}'))
    assert outcome.kind is inside.Kind.MISFIT
    assert is_made_by(outcome.message, messages.incompatible_inputs, "KeyError: 'text'")


def test_each_attempt_has_its_own_context_variables(worker):
    """G5."""
    before = executed(worker, task("daemon.context"))
    worker._perform(task("daemon.sets_context"))
    worker._perform(task("daemon.context"))
    records = worker._ring.read(worker._ring.written)
    assert inside.unpacked_end(records[-1])[-1].response == before.response
    assert b"0.3333333333333333333333333333" in before.response.data


@pytest.mark.parametrize("how", ["autocommit", "atomic"])
def test_transaction_left_open_fails_the_attempt(worker, said, how):
    """Defer is kept, and the log tells what was lost."""
    connection.close()
    queue.register_all()
    outcome = executed(worker, task("daemon.leaves_open", f'{{"how":"{how}"}}'))
    assert outcome.kind is inside.Kind.ERROR
    assert tells(outcome.message, messages.left_transaction_open())
    assert not Type.objects.filter(handler="changed").exists()
    given = task("daemon.leaves_open", f'{{"how":"{how}","then":"defer"}}')
    worker._perform(given)
    assert (
        inside.unpacked_end(worker._ring.read(worker._ring.written)[-1])[-1].kind
        is inside.Kind.DEFER
    )
    log = [message for message in said.messages if isinstance(message, inside.Logged)][-1]
    assert tells(log[-1], messages.left_transaction_open())


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OperationalError("too many clients"), inside.Kind.SHUT_OUT),
        (KeyError("a receiver's own fault"), inside.Kind.ERROR),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_only_an_outage_at_the_begin_of_a_transaction_is_not_charged(worker, raised, kind):
    """G2, G5."""

    def refuse(sender, **kwargs):
        raise raised

    connection.close()
    connection_created.connect(refuse)
    try:
        outcome = executed(worker, task("transactional.row", '{"number":1}'))
    finally:
        connection_created.disconnect(refuse)
        connection.close()
    assert outcome.kind is kind
    assert str(raised) in outcome.message


def test_log_of_a_thread_left_behind_is_not_in_the_log_of_later_attempts(worker, said, caplog):
    """G6."""
    worker._threads.install()
    go = threading.Event()
    logger = logging.getLogger("shop")
    worker._process_state = inside.ProcessState()

    def inner():
        logger.warning("of a thread of that")

    def outer():
        assert go.wait(60)
        logger.warning("of the first")
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join(60)

    stray = threading.Thread(target=outer)
    worker._capture.context = SimpleNamespace(log=lambda *args: said.messages.append(args))
    worker._threads.begin()
    stray.start()
    worker._threads.begin()
    go.set()
    stray.join(60)
    own = threading.Thread(target=lambda: logger.warning("of the second"))
    own.start()
    own.join(60)
    assert [text for text, _ in said.messages] == ["shop: of the second"]
    told = [record.getMessage() for record in caplog.records if record.name == "atp.worker"]
    assert [text.rpartition("shop: ")[2] for text in told] == [
        "of the first",
        "of a thread of that",
    ]


@pytest.mark.parametrize("how", ["dictConfig", "flags", "handlers"])
def test_logging_configuration_is_restored(worker, how, monkeypatch):
    """G6."""
    root, logger = logging.getLogger(), logging.getLogger("atp.worker")
    monkeypatch.setattr(root, "level", logging.INFO)
    worker._process_state = inside.ProcessState()
    before = [*root.handlers], root.level, logger.disabled, logger.propagate, [*logger.handlers]
    if how == "dictConfig":
        logging.config.dictConfig({"version": 1, "root": {"level": "WARNING"}})
        assert logger.disabled
    elif how == "flags":
        logger.disabled, logger.propagate = True, False
        monkeypatch.setattr(inside.logs, "EVERY", 0.0)
    else:
        logger.addHandler(logging.StreamHandler())
        root.addHandler(logging.NullHandler())
    worker._process_state.restore()
    after = [*root.handlers], root.level, logger.disabled, logger.propagate, [*logger.handlers]
    assert after == before


# The signal that interrupts a handler

KEY, OTHER = (1, 1), (2, 1)


@pytest.fixture
def asked():
    """The attempts that have been asked to end."""
    return set()


@pytest.fixture
def interruption(asked):
    was = signal.getsignal(inside.SIGNAL)
    interruption = inside.Interruption(asked.__contains__)
    interruption.listen()
    interruption.expect(KEY)
    yield interruption
    signal.signal(inside.SIGNAL, was)


def strike():
    """Send this process the signal; its handler has run when this returns."""
    os.kill(os.getpid(), inside.SIGNAL)


def test_handler_that_cleans_up_is_not_interrupted_again(interruption, asked):
    asked.add(KEY)
    cleaned = []

    def handler():
        try:
            strike()
        finally:
            strike()
            cleaned.append(True)

    with pytest.raises(Interrupted), interruption:
        handler()
    assert cleaned


def test_interruption_hits_only_its_own_attempt(interruption, asked):
    """One that comes before its handler is entered is remembered until then."""
    asked.add(KEY)
    with interruption:
        pass
    for _ in range(2):
        strike()
        interruption.expect(OTHER)
        with interruption:
            pass
        assert not interruption.has_struck
        interruption.expect(KEY)
        strike()
        entered = False
        with pytest.raises(Interrupted), interruption:
            entered = True
        assert not entered
        assert not interruption.has_struck


def test_signal_of_interruptions_is_ignored_by_default():
    """Whatever a task makes of it, it kills nobody."""
    was = signal.signal(inside.SIGNAL, signal.SIG_DFL)
    try:
        strike()
    finally:
        signal.signal(inside.SIGNAL, was)


# From an outcome and a budget to a move


def test_outcome_and_budget_become_a_transition():
    """The log gets the class of the exception, cut to fit."""
    given = parameters(
        max_retries=2, backoff=timedelta(seconds=4), backoff_max=timedelta(minutes=1)
    )
    fresh = claimed(1, parameters=given)
    used_up = claimed(1, parameters=given, retries=2)
    made = inside.move(inside.Outcome(inside.Kind.FINISHED), fresh, who="me")
    assert (made.event, made.instance, made.attempt, made.who) == (Event.FINISH, 1, 1, "me")
    for kind in (inside.Kind.RETRY, inside.Kind.ERROR, inside.Kind.INTERRUPTED):
        made = inside.move(inside.Outcome(kind, "why", raised="shop.NoMoney"), fresh)
        assert (made.event, made.detail) == (Event.RETRY, "shop.NoMoney")
        assert timedelta(seconds=2) <= made.delay <= timedelta(seconds=4)
    assert inside.move(inside.Outcome(inside.Kind.RETRY, "", after=30), fresh).delay == timedelta(
        seconds=30
    )
    for kind in (inside.Kind.RETRY, inside.Kind.ERROR):
        made = inside.move(inside.Outcome(kind, "why", raised="x." * 90), used_up)
        assert (made.event, made.reason, made.detail) == (Event.FAIL, Reason.ERROR, "x." * 32)
        assert made.message.startswith("why ")
        assert tells(made.message, messages.retries_used_up(2, 2))
    made = inside.move(inside.Outcome(inside.Kind.FATAL, "no use"), fresh)
    assert (made.event, made.reason, made.message) == (Event.FAIL, Reason.FATAL, "no use")
    # The store makes more of inputs that do not fit: when it is due, or that it fails.
    made = inside.move(inside.Outcome(inside.Kind.MISFIT, "why", signature="1a2b3c4d"), used_up)
    assert (made.event, made.message, made.level) == (Event.DEFER, "why", logging.WARNING)
    assert read_signature(made.detail) == "1a2b3c4d"
    assert inside.is_misfit(made)
    assert not inside.is_misfit(
        inside.move(inside.Outcome(inside.Kind.DEFER, "why", after=1), fresh)
    )


# Whatever an exception does when it is looked at, the attempt ends as its class says (G5)

EVENTS = {"fatal": Event.FAIL, "retry": Event.RETRY, "error": Event.RETRY, "defer": Event.DEFER}
# What can be told of them is told, and the delay that they ask for is kept.
TOLD = {
    "str raises": "Odd",
    "str recurses": "Recursing",
    "fatal, str raises": "Odd",
    "fatal, lying": "x",
    "a lying metaclass": "Lying: x",
    "cause raises": "Odd: x",
    "notes raise": "Odd: x",
    "surrogates": "ValueError: ??",
}
DELAYS = {
    "retry, alone in a group": 7,
    "retry, no super": None,
    "retry, after is for ever": None,
    "defer, no super": 60,
    "defer, after is nothing": 60,
    "defer, str raises": 3,
}


@pytest.fixture
def odd(monkeypatch):
    """Return a function that runs a handler which raises what ``make()`` returns."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))

    def run(make, **declared):
        @tasks_odd.task_type("tests.odd", **declared)
        def handler(context):
            raise make()

        return inside.execution.run(claimed(1, "tests.odd"), None)

    return run


@pytest.mark.slow
def test_odd_exceptions_end_the_attempt_as_their_class_says(odd):
    for name, (make, kind) in tasks_odd.ODD.items():
        outcome = odd(make)
        assert outcome.kind == inside.Kind(kind), name
        # It goes to a process that knows nothing of the class, and into a column.
        assert type(outcome.message) is type(outcome.raised) is str, name
        assert outcome.message.strip(), name
        assert "\0" not in outcome.message + outcome.raised, name
        (outcome.message + outcome.raised).encode()
        assert len(outcome.message) < 10_000, name
        again = pickle.loads(pickle.dumps(outcome))
        last = inside.move(again, claimed(1, "tests.odd", parameters=parameters()))
        assert last.event in (EVENTS[kind], Event.FAIL), name
        assert TOLD.get(name, "") in headline(outcome.message), name
        if name in DELAYS:
            assert outcome.after == DELAYS[name], name


def test_log_handler_that_fails_on_an_odd_exception_changes_nothing(odd, monkeypatch):

    class Looking(logging.Handler):
        def emit(self, record):
            str(record.exc_info[1])

    logger = logging.getLogger("atp.worker")
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, Looking()])
    assert odd(tasks_odd.ODD["str exits"][0]).kind is inside.Kind.ERROR


def test_exception_alone_in_a_group_counts_as_itself(worker, odd):
    outcome = executed(worker, task("odd.in_a_task_group"))
    assert (outcome.kind, outcome.after, outcome.message) == (inside.Kind.RETRY, 7, "later")
    group = ExceptionGroup("x", [ExceptionGroup("y", [ValueError("x")])])
    assert odd(lambda: group, fatal_on=ValueError).kind is inside.Kind.LAST


@pytest.mark.slow
@pytest.mark.parametrize("type", [str(each) for each in registry if "odd.weighs" in str(each)])
def test_attempt_that_raises_frees_its_memory_at_once(worker, type, monkeypatch):
    """G5: not when garbage is collected."""
    # Those of pytest keep the records, and with them the exceptions.
    monkeypatch.setattr(logging.root, "handlers", [worker._capture])
    gc.collect()
    gc.disable()
    try:
        tasks_odd.weights.clear()
        assert executed(worker, task(type)).kind in (inside.Kind.ERROR, inside.Kind.FATAL)
        assert [weight() for weight in tasks_odd.weights if weight() is not None] == []
        assert tasks_odd.weights
    finally:
        gc.enable()
