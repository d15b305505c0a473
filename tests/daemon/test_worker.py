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
from atp.daemon.options import Options
from atp.daemon.shared.channel import Closed
from atp.daemon.shared.inherited import Inherited
from atp.daemon.shared.messages import Ended, Logged, Retiring
from atp.daemon.shared.outcome import Kind, Outcome, move
from atp.daemon.shared.packing import unpacked_end
from atp.daemon.shared.running_page import Page
from atp.daemon.worker import execution
from atp.daemon.worker.interruption import SIGNAL, Interruption
from atp.daemon.worker.isolation import logs
from atp.daemon.worker.isolation.process_state import ProcessState
from atp.daemon.worker.worker import Worker
from atp.models import Type, read_signature
from atp.operations.registry import registry
from atp.states import Event, Reason
from atp.store.misfits import is_misfit
from atp.text import headline
from tests.app import tasks_odd
from tests.samples import claimed, parameters

from ..nonsense import is_made_by, tells


class Said:
    """A channel that keeps what the worker says."""

    def __init__(self):
        self.messages = []

    def send(self, message, wait=True):
        self.messages.append(message)

    def kinds(self):
        return [type(message) for message in self.messages]


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def worker(said, tmp_path, transactional_db, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers])
    (tmp_path / "worker-0").mkdir()
    folders = SimpleNamespace(scratch=tmp_path)
    made = Worker(0, said, None, Inherited(Page(1), Options(processes=1), folders))
    logging.root.addHandler(made._capture)
    return made


def task(type, inputs="{}"):
    return claimed(1, type)._replace(data=inputs)


def executed(worker, claimed):
    """Perform a task, and return its outcome as the dispatcher hears it."""
    worker._perform(claimed)
    [record] = worker._ring.read(worker._ring.written)
    return unpacked_end(record)[-1]


def test_what_is_too_large_for_the_ring_goes_through_the_channel(worker, said):
    """G1: nothing that a handler returned is lost on its way."""
    worker._perform(task("daemon.error", f'{{"words":"{"x" * 7000}"}}'))
    assert said.kinds() == [Ended]
    assert "x" * 7000 in said.messages[0].outcome.message
    for size in (100, 1):
        while worker._ring.write(b"x" * size):
            pass
    worker._perform(task("daemon.noop"))
    assert isinstance(said.messages[1], Ended)
    assert said.messages[1][:2] == (1, 1)


def test_who_has_returned_and_is_not_heard_does_not_run_out_of_time(worker, said):
    """G9: the dispatcher hears nobody whose Instance somebody has locked."""
    deadlines = []
    said.send = lambda message, wait=True: deadlines.append(worker._page.read(0).deadline)
    worker._ring = SimpleNamespace(write=lambda record: False)
    limited = parameters("daemon.noop", timeout=timedelta(minutes=1))
    worker._perform(task("daemon.noop")._replace(parameters=limited))
    assert deadlines[-1] == float("inf")


@pytest.mark.parametrize("error", [BlockingIOError, Closed])
def test_who_retires_and_cannot_say_so_tells_the_end_all_the_same(worker, said, error):
    """G1: the dispatcher may not be reading, or a handler may have closed the channel."""
    worker._options = replace(worker._options, max_tasks_per_worker=1)

    def refuse(message, wait=True):
        assert not wait
        raise error

    said.send = refuse
    assert executed(worker, task("daemon.noop")) is None
    assert worker._is_to_retire()
    said.messages.clear()
    del said.send
    assert worker._is_to_retire()
    assert said.kinds() == [Retiring]


def test_error_reporters_see_exceptions(worker, caplog):
    """By logging and by signals, Django's and ATP's; an exception in a receiver harms nothing."""
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
    assert (outcome.kind, outcome.raised) == (Kind.ERROR, "builtins.ValueError")
    assert around == [("started", "daemon.error"), ("ended", "look at this", Kind.ERROR)]
    # Fatal, as Retry, is a word of the handler, no accident.
    assert executed(worker, task("daemon.fatal")).raised == "atp.exceptions.Fatal"
    assert [str(error) for error in seen] == ["look at this"]
    [record] = [r for r in caplog.records if r.name == "atp.worker"]
    assert str(record.exc_info[1]) == "look at this"


def test_inputs_of_another_signature(worker, settings, monkeypatch):
    """They may fit another daemon: the handler is not entered, and nothing is spent.

    Those of an older release are adapted to the handler of today; an adapter that raises leaves
    them to others.
    """
    settings.ATP = settings.ATP | {"RELEASE": "3f2a"}
    outcome = executed(worker, task("daemon.error", '{"words":"x","nothing":2}'))
    assert outcome.kind is Kind.MISFIT
    assert outcome.signature == registry.get("daemon.error").fingerprint
    words = "release 3f2a does not take its inputs: there is no argument 'nothing'"
    assert is_made_by(outcome.message, messages.incompatible_inputs, words)

    declared = replace(registry.get("daemon.error"), adapters=[])
    monkeypatch.setattr(registry, "_types", {"daemon.error": declared})

    @declared.adapt
    def _(inputs):
        return {"words": inputs.pop("text")}

    outcome = executed(worker, task("daemon.error", '{"text":"look at this"}'))
    assert outcome.kind is Kind.ERROR
    assert "look at this" in outcome.message
    outcome = executed(worker, task("daemon.error", '{"nothing":2}'))
    assert outcome.kind is Kind.MISFIT
    assert is_made_by(outcome.message, messages.incompatible_inputs, "KeyError: 'text'")


def test_a_context_of_its_own(worker):
    """G5: no attempt finds what another has set in its context."""
    before = executed(worker, task("daemon.context"))
    worker._perform(task("daemon.sets_context"))
    worker._perform(task("daemon.context"))
    records = worker._ring.read(worker._ring.written)
    assert unpacked_end(records[-1])[-1].response == before.response
    assert b"0.3333333333333333333333333333" in before.response.data


@pytest.mark.parametrize("how", ["autocommit", "atomic"])
def test_a_transaction_left_open_fails_the_attempt(worker, said, how):
    """One that defers is deferred as it asked for, and the log says what was lost."""
    connection.close()
    queue.register_all()
    outcome = executed(worker, task("daemon.leaves_open", f'{{"how":"{how}"}}'))
    assert outcome.kind is Kind.ERROR
    assert tells(outcome.message, messages.left_transaction_open())
    assert not Type.objects.filter(handler="changed").exists()
    given = task("daemon.leaves_open", f'{{"how":"{how}","then":"defer"}}')
    worker._perform(given)
    assert unpacked_end(worker._ring.read(worker._ring.written)[-1])[-1].kind is Kind.DEFER
    log = [message for message in said.messages if isinstance(message, Logged)][-1]
    assert tells(log[-1], messages.left_transaction_open())


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OperationalError("too many clients"), Kind.SHUT_OUT),
        (KeyError("a receiver's own fault"), Kind.ERROR),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_a_transaction_that_cannot_begin(worker, raised, kind):
    """G2, G5: only an outage is nobody's fault; else the attempt has failed, and says why."""

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


def test_a_thread_that_an_earlier_attempt_left_behind(worker, said, caplog):
    """G6: what it logs, and what a thread logs that it starts, is not in the log of others."""
    worker._threads.install()
    go = threading.Event()
    logger = logging.getLogger("shop")
    worker._process_state = ProcessState()

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
def test_logging_that_a_handler_configured_anew(worker, how, monkeypatch):
    """G6: the next attempt finds all loggers as they were."""
    root, logger = logging.getLogger(), logging.getLogger("atp.worker")
    monkeypatch.setattr(root, "level", logging.INFO)
    worker._process_state = ProcessState()
    before = [*root.handlers], root.level, logger.disabled, logger.propagate, [*logger.handlers]
    if how == "dictConfig":
        logging.config.dictConfig({"version": 1, "root": {"level": "WARNING"}})
        assert logger.disabled
    elif how == "flags":
        logger.disabled, logger.propagate = True, False
        monkeypatch.setattr(logs, "EVERY", 0.0)
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
    was = signal.getsignal(SIGNAL)
    interruption = Interruption(asked.__contains__)
    interruption.listen()
    interruption.expect(KEY)
    yield interruption
    signal.signal(SIGNAL, was)


def strike():
    """Send this process the signal; its handler has run when this returns."""
    os.kill(os.getpid(), SIGNAL)


def test_who_cleans_up_is_not_interrupted_again(interruption, asked):
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


def test_an_interruption_hits_the_attempt_that_it_is_meant_for(interruption, asked):
    """Between attempts nothing is raised. Before the handler it is remembered, and then forgotten.

    The inputs may be long to read.
    """
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


def test_without_anybody_to_take_it_nothing_happens():
    """The default of this signal is to be ignored: whatever a task makes of it, it kills nobody."""
    was = signal.signal(SIGNAL, signal.SIG_DFL)
    try:
        strike()
    finally:
        signal.signal(SIGNAL, was)


# From an outcome and a budget to a move


def test_what_becomes_of_an_attempt():
    """Retries that are left are used; the log gets the class of the exception, cut to fit."""
    given = parameters(
        max_retries=2, backoff=timedelta(seconds=4), backoff_max=timedelta(minutes=1)
    )
    fresh = claimed(1)._replace(parameters=given)
    used_up = fresh._replace(retries=2)
    made = move(Outcome(Kind.FINISHED), fresh, who="me")
    assert (made.event, made.instance, made.attempt, made.who) == (Event.FINISH, 1, 1, "me")
    for kind in (Kind.RETRY, Kind.ERROR, Kind.INTERRUPTED):
        made = move(Outcome(kind, "why", raised="shop.NoMoney"), fresh)
        assert (made.event, made.detail) == (Event.RETRY, "shop.NoMoney")
        assert timedelta(seconds=2) <= made.delay <= timedelta(seconds=4)
    assert move(Outcome(Kind.RETRY, "", after=30), fresh).delay == timedelta(seconds=30)
    for kind in (Kind.RETRY, Kind.ERROR):
        made = move(Outcome(kind, "why", raised="x." * 90), used_up)
        assert (made.event, made.reason, made.detail) == (Event.FAIL, Reason.ERROR, "x." * 32)
        assert made.message.startswith("why ")
        assert tells(made.message, messages.retries_used_up(2, 2))
    made = move(Outcome(Kind.FATAL, "no use"), fresh)
    assert (made.event, made.reason, made.message) == (Event.FAIL, Reason.FATAL, "no use")
    # The store makes more of inputs that do not fit: when it is due, or that it fails.
    made = move(Outcome(Kind.MISFIT, "why", signature="1a2b3c4d"), used_up)
    assert (made.event, made.message, made.level) == (Event.DEFER, "why", logging.WARNING)
    assert read_signature(made.detail) == "1a2b3c4d"
    assert is_misfit(made)
    assert not is_misfit(move(Outcome(Kind.DEFER, "why", after=1), fresh))


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

        return execution.run(claimed(1, "tests.odd"), None)

    return run


def test_odd_exceptions(odd):
    for name, (make, kind) in tasks_odd.ODD.items():
        outcome = odd(make)
        assert outcome.kind == Kind(kind), name
        # It goes to a process that knows nothing of the class, and into a column.
        assert type(outcome.message) is type(outcome.raised) is str, name
        assert outcome.message.strip(), name
        assert "\0" not in outcome.message + outcome.raised, name
        (outcome.message + outcome.raised).encode()
        assert len(outcome.message) < 10_000, name
        again = pickle.loads(pickle.dumps(outcome))
        last = move(again, claimed(1, "tests.odd")._replace(own=None, parameters=parameters()))
        assert last.event in (EVENTS[kind], Event.FAIL), name
        assert TOLD.get(name, "") in headline(outcome.message), name
        if name in DELAYS:
            assert outcome.after == DELAYS[name], name


def test_a_receiver_that_cannot_look_at_an_odd_exception(odd, monkeypatch):
    """A log handler that formats it fails; the attempt ends as it would."""

    class Looking(logging.Handler):
        def emit(self, record):
            str(record.exc_info[1])

    logger = logging.getLogger("atp.worker")
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, Looking()])
    assert odd(tasks_odd.ODD["str exits"][0]).kind is Kind.ERROR


def test_an_exception_alone_in_a_group_counts_as_what_it_is(worker, odd):
    outcome = executed(worker, task("odd.in_a_task_group"))
    assert (outcome.kind, outcome.after, outcome.message) == (Kind.RETRY, 7, "later")
    group = ExceptionGroup("x", [ExceptionGroup("y", [ValueError("x")])])
    assert odd(lambda: group, fatal_on=ValueError).kind is Kind.LAST


@pytest.mark.parametrize("type", ["odd.weighs", "odd.weighs.together", "odd.weighs.coroutine"])
def test_an_attempt_that_raises_keeps_nothing(worker, type):
    """G5: memory is free when the attempt has ended, not when garbage is collected."""
    gc.collect()
    gc.disable()
    try:
        tasks_odd.weights.clear()
        assert executed(worker, task(type)).kind is Kind.ERROR
        [weight] = tasks_odd.weights
        assert weight() is None
    finally:
        gc.enable()
