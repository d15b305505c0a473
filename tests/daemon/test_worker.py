"""What surrounds a handler: connections, error reporters, logging, interruption."""

import contextvars
import logging
import logging.config
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import got_request_exception
from django.db import OperationalError, ProgrammingError, connection
from django.db.backends.signals import connection_created

from atp import queue, signals
from atp.daemon.options import Options
from atp.daemon.shared.channel import Closed
from atp.daemon.shared.inherited import Inherited
from atp.daemon.shared.messages import Ended, Logged, Look, Retiring
from atp.daemon.shared.outcome import Kind
from atp.daemon.shared.packing import unpacked_end
from atp.daemon.shared.running_page import Page
from atp.daemon.worker.isolation import logs, threads
from atp.daemon.worker.isolation.process_state import ProcessState
from atp.daemon.worker.preparing import open_root_logger, share_caches
from atp.daemon.worker.worker import Worker
from atp.models import Type
from atp.verbs.registry import registry
from atp.words import attempt_messages, log_messages
from tests.helpers import wait_for
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


def test_one_task(worker, said):
    worker._perform(task("SequenceSum", '{"*":[1,2,3]}'))
    assert said.kinds() == [Logged, Look]
    [record] = worker._ring.read(worker._ring.written)
    instance, attempt, started, ended, outcome = unpacked_end(record)
    assert (instance, attempt, started <= ended) == (1, 1, True)
    assert outcome.kind is Kind.FINISHED
    assert outcome.response.data == b"6"
    assert worker._page.read(0) is None


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


@pytest.mark.parametrize("kind", [Ended, Logged])
def test_who_has_returned_and_is_not_heard_does_not_run_out_of_time(worker, said, kind):
    """G9: the dispatcher hears nobody whose Instance somebody has locked."""
    deadlines = {}

    def send(message, wait=True):
        deadlines[type(message)] = worker._page.read(0).deadline

    said.send = send
    worker._ring = SimpleNamespace(write=lambda record: False)
    signals.handler_ended.connect(_says_so)
    try:
        worker._perform(timed("daemon.noop"))
    finally:
        signals.handler_ended.disconnect(_says_so)
    assert deadlines[kind] == float("inf")


def test_a_handler_that_is_not_heard_runs_out_of_time(worker, said):
    deadlines = []
    said.send = lambda message, wait=True: deadlines.append(worker._page.read(0).deadline)
    worker._perform(timed("SequenceSum", '{"*":[1,2,3]}'))
    assert deadlines[0] < float("inf")


def timed(type, inputs="{}"):
    limited = parameters(type, timeout=timedelta(minutes=1))
    return task(type, inputs)._replace(parameters=limited)


def _says_so(context, **facts):
    context.log("over")


@pytest.mark.parametrize("error", [BlockingIOError, OSError, Closed])
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


def test_short_tasks_do_not_call_the_dispatcher_each(worker, said, monkeypatch):
    """They do so after a time, which a slow machine takes for each."""
    monkeypatch.setattr("atp.daemon.worker.worker.CALL_AFTER", 3600.0)
    for _ in range(100):
        worker._perform(task("daemon.noop"))
    assert len(worker._ring.read(worker._ring.written)) == 100
    assert set(said.kinds()) <= {Look}
    assert len(said.messages) <= 1


def test_error_reporters_see_exceptions(worker, caplog):
    """By logging and by Django's signal; an exception in a receiver harms nothing."""
    seen = []

    def reporter(sender, request, **kwargs):
        import sys

        seen.append(sys.exc_info()[1])
        raise RuntimeError("a reporter that fails")

    got_request_exception.connect(reporter)
    try:
        outcome = executed(worker, task("daemon.error", '{"words":"look at this"}'))
    finally:
        got_request_exception.disconnect(reporter)
    assert outcome.kind is Kind.ERROR
    assert [str(error) for error in seen] == ["look at this"]
    [record] = [r for r in caplog.records if r.name == "atp.worker"]
    assert str(record.exc_info[1]) == "look at this"


def test_what_was_meant_is_not_reported(worker, caplog):
    """Retry and Fatal are words of the handler, not accidents."""
    assert executed(worker, task("daemon.fatal")).kind is Kind.FATAL
    assert not [r for r in caplog.records if r.name == "atp.worker"]


@pytest.mark.parametrize("inputs", ["not json", "[]", '{"words":1,"nothing":2}'])
def test_inputs_that_cannot_be_used(worker, inputs):
    outcome = executed(worker, task("daemon.error", inputs))
    assert outcome.kind in (Kind.FATAL, Kind.MISFIT)


def test_inputs_of_another_signature(worker, settings):
    """They may fit another daemon: the handler is not entered, and nothing is spent."""
    settings.ATP = settings.ATP | {"RELEASE": "3f2a"}
    outcome = executed(worker, task("daemon.error", '{"words":"x","nothing":2}'))
    assert outcome.kind is Kind.MISFIT
    assert outcome.signature == registry.get("daemon.error").fingerprint
    words = "release 3f2a does not take its inputs: there is no argument 'nothing'"
    assert is_made_by(outcome.message, log_messages.misfit, words)


def test_inputs_that_are_adapted(worker, monkeypatch):
    """Inputs of an older release run in the handler of today, and are stored as they were."""
    declared = registry.get("daemon.error")
    monkeypatch.setattr(registry, "_types", {"daemon.error": replace(declared, adapters=[])})
    declared = registry.get("daemon.error")

    @declared.adapt
    def _(inputs):
        return {"words": inputs.pop("text")}

    outcome = executed(worker, task("daemon.error", '{"text":"look at this"}'))
    assert outcome.kind is Kind.ERROR
    assert "look at this" in outcome.message


def test_an_adapter_that_raises_leaves_it_to_another_daemon(worker, monkeypatch):
    declared = registry.get("daemon.error")
    monkeypatch.setattr(registry, "_types", {"daemon.error": replace(declared, adapters=[])})
    declared = registry.get("daemon.error")

    @declared.adapt
    def _(inputs):
        raise KeyError("text")

    outcome = executed(worker, task("daemon.error", '{"nothing":2}'))
    assert outcome.kind is Kind.MISFIT
    assert is_made_by(outcome.message, log_messages.misfit, "KeyError: 'text'")


def test_a_context_of_its_own(worker):
    """G5: no attempt finds what another has set in its context."""
    before = executed(worker, task("daemon.context"))
    worker._perform(task("daemon.sets_context"))
    worker._perform(task("daemon.context"))
    records = worker._ring.read(worker._ring.written)
    assert unpacked_end(records[-1])[-1].response == before.response
    assert b"0.3333333333333333333333333333" in before.response.data


def test_caches_are_shared_by_all_contexts(worker):
    """Whoever has a connection to a cache in one attempt has it in the next."""
    share_caches()
    found = [contextvars.copy_context().run(lambda: caches["default"]) for _ in range(2)]
    assert found[0] is found[1]


@pytest.mark.parametrize("how", ["autocommit", "atomic"])
def test_a_transaction_left_open_fails_the_attempt(worker, said, how):
    connection.close()
    queue.register_all()
    outcome = executed(worker, task("daemon.leaves_open", f'{{"how":"{how}"}}'))
    assert outcome.kind is Kind.ERROR
    assert tells(outcome.message, attempt_messages.left_transaction_open())
    assert not Type.objects.filter(handler="changed").exists()


def test_a_transaction_left_open_by_one_that_defers(worker, said):
    """It is deferred as it asked for, and the log says what was lost."""
    connection.close()
    queue.register_all()
    outcome = executed(worker, task("daemon.leaves_open", '{"how":"atomic","then":"defer"}'))
    assert outcome.kind is Kind.DEFER
    [log] = [message for message in said.messages if isinstance(message, Logged)]
    assert tells(log[-1], attempt_messages.left_transaction_open())


def test_a_group_of_exceptions_is_named(worker):
    """The last line is what the daemon's log says."""
    outcome = executed(worker, task("daemon.many"))
    assert outcome.message.splitlines()[-1] == "ExceptionGroup: many (2 sub-exceptions)"
    assert "TypeError: two" in outcome.message


@pytest.mark.parametrize(
    ("type", "inputs", "raised"),
    [
        ("daemon.error", "{}", "builtins.ValueError"),
        ("daemon.fatal", "{}", "atp.exceptions.Fatal"),
        ("daemon.error", '{"*": [1, 2]', "atp.exceptions.CorruptData"),
        ("daemon.noop", "{}", ""),
    ],
)
def test_an_outcome_names_the_class_of_the_exception(worker, type, inputs, raised):
    outcome = executed(worker, task(type, inputs))
    assert (outcome.raised if outcome else "") == raised


def test_signals_around_a_handler(worker):
    seen = []

    def started(context, **kwargs):
        seen.append(("started", context.type))

    def ended(context, exception, outcome, **kwargs):
        seen.append(("ended", str(exception), outcome.kind))

    signals.handler_started.connect(started)
    signals.handler_ended.connect(ended)
    executed(worker, task("daemon.error"))
    assert seen == [("started", "daemon.error"), ("ended", "went wrong", Kind.ERROR)]


def test_an_asked_attempt_is_interrupted(worker, tmp_path):
    worker._page.ask(0, 1, 1)
    inputs = f'{{"path":"{tmp_path}/record","until":"{tmp_path}/never"}}'
    assert executed(worker, task("daemon.interrupted", inputs)).kind is Kind.INTERRUPTED


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OperationalError("too many clients"), Kind.SHUT_OUT),
        (ImproperlyConfigured("not like this"), Kind.ERROR),
        (KeyError("a receiver's own fault"), Kind.ERROR),
        (ProgrammingError("no such role"), Kind.ERROR),
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


def test_root_logger_passes_what_is_captured_and_no_more(monkeypatch):
    root = logging.getLogger()
    handler = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(root, "level", logging.WARNING)
    open_root_logger("INFO")
    assert root.level == logging.INFO
    assert handler.level == logging.WARNING
    root.setLevel(logging.WARNING)


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


def test_a_pool_of_threads_works_for_the_attempt_that_runs(worker, said):
    """At the level of a module, its threads are older than the attempt that uses them."""
    worker._threads.install()
    logger = logging.getLogger("shop")
    worker._capture.context = SimpleNamespace(log=lambda *args: said.messages.append(args))
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            worker._threads.begin()
            pool.submit(logger.warning, "x").result(60)
            wait_for(lambda: _is_idle(pool), what="an idle thread")
    assert len(said.messages) == 3


def _is_idle(pool):
    [thread] = pool._threads
    return sys._current_frames()[thread.ident].f_code in threads._IDLE


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
