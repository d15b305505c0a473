"""The daemon's log, as text and as JSON, and what workers print: whole lines, never waited for."""

import json
import logging
import os
import re
import string
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from atp import queue
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, manage

from . import inside


def test_table_has_exactly_the_facts_that_are_logged():
    source = "".join(p.read_text() for p in Path(inside.journal.__file__).parent.rglob("*.py"))
    told = set(re.findall(r"\b(?:journal|log)\.([a-z_]+)\b", source))
    # What is no fact: other names of the module, and those of loggers and log processes.
    told -= {"configure", "logger", "tells", "close", "handlers", "level", "propagate", "start"}
    assert told == set(inside.journal.FACTS)


def test_log_is_configured_unless_the_project_has_handlers(monkeypatch):
    logger = logging.getLogger("atp")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(inside.journal.Style, "is_json", False)
    before, levels = logger.level, []
    for verbosity in (0, 1, 2):
        inside.journal.configure("json", verbosity)
        levels.append(logging.getLevelName(logger.level))
    assert levels == ["WARNING", "INFO", "DEBUG"]
    assert isinstance(logger.handlers[0].formatter, inside.journal.JSONFormatter)
    own = [logging.NullHandler()]
    monkeypatch.setattr(logger, "handlers", own)
    inside.journal.configure(None)
    logger.setLevel(before)
    assert logger.handlers == own


# Text that would look like a line of the daemon, however lines are told apart, and that
# would speak to a terminal.
_LINE = "2026-01-01 00:00:00,000 ERROR   1 forged"
_ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"]
_HOSTILE = "a" + "".join(f"{end}{_LINE}" for end in _ENDS) + "\x1b[2J\x9b2J\u202eb\u2066c\x7f\u061c"


def _raised():
    """Return the exc_info of an exception with hostile text, also in a note and in its cause."""
    try:
        try:
            raise KeyError(_HOSTILE)
        except KeyError as cause:
            error = ValueError(_HOSTILE)
            error.add_note(_HOSTILE)
            raise error from cause
    except ValueError:
        return sys.exc_info()


def _starts(text):
    """Return what the lines of a log begin with, for whoever ends lines at most characters."""
    return {line[:2] for line in text.splitlines()}


def test_every_fact_is_one_line_in_text_and_json(caplog):
    """Also with hostile values, and when the project formats it."""
    caplog.set_level(logging.DEBUG, inside.journal.logger.name)
    for fact, (_, words) in inside.journal.FACTS.items():
        fields = [(name, spec) for _, name, spec, _ in string.Formatter().parse(words) if name]
        names = {name: 1.5 if spec else _HOSTILE for name, spec in fields}
        caplog.clear()
        getattr(inside.journal, fact)(exc_info=_raised()[1], **names)
        [record] = caplog.records
        line = json.loads(inside.journal.JSONFormatter().format(record))
        assert line["fact"] == fact
        assert line["message"] == record.getMessage()
        assert {name: line[name] for name in names} == names
        own = inside.journal.TextFormatter().format(record)
        assert re.match(r"[\d-]+ [\d:,]+ (DEBUG|INFO|WARNING|ERROR) +\d+ ", own), fact
        for text in (own, logging.Formatter("20 %(message)s").format(record)):
            assert _starts(text) <= {"20", "| "}, fact
            assert len([line for line in text.splitlines() if line.startswith("20")]) == 1
            assert not {*text} & {"\x1b", "\u202e"}, fact
    with pytest.raises(AttributeError):
        _ = inside.journal.no_such_fact


def test_record_of_other_code_is_one_line_in_text_and_json():
    """Also after another formatter has formatted its traceback."""
    record = logging.LogRecord("atp.x", 40, "", 0, "%s", (_HOSTILE,), _raised(), sinfo=_HOSTILE)
    logging.Formatter().format(record)
    text = inside.journal.TextFormatter().format(record)
    first, *others = text.splitlines()
    assert first.startswith("20")
    assert {line[:2] for line in others} == {"| "}
    assert "| Traceback (most recent call last):" in others
    assert not re.search("[\x1b\x7f-\x9f\u061c\u202e\u2066]", text)
    record.fact, record.values = "failed", {"why": _HOSTILE}
    text = inside.journal.JSONFormatter().format(record)
    assert len(text.splitlines()) == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u061c\u202e\u2066]", text)
    line = json.loads(text)
    assert (line["why"], line["message"]) == (_HOSTILE, _HOSTILE)
    assert _HOSTILE in line["traceback"]


def test_output_of_libraries_in_the_dispatcher_is_marked(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        stream = inside.NonBlockingStream(log.fileno())
        for piece in ("half", f" {_HOSTILE}", "\n", f"{_LINE}\n{_LINE}"):
            stream.write(piece)
        stream.flush()
    text = (tmp_path / "log").read_text()
    assert _starts(text) == {"| "}
    assert text.startswith("| half a\n| 2026")


def test_record_that_cannot_be_formatted_is_one_line(tmp_path):
    class Broken(logging.Formatter):
        def format(self, record):
            raise ValueError(_HOSTILE)

    with (tmp_path / "log").open("wb") as log:
        handler = inside.NonBlockingHandler(log.fileno())
        handler.setFormatter(Broken())
        handler.handle(logging.LogRecord("atp.x", 40, "", 0, "", (), None))
    first, *others = (tmp_path / "log").read_text().splitlines()
    assert first == "atp.x: a line could not be logged"
    assert {line[:2] for line in others} == {"| "}


def test_handler_cannot_forge_a_line_of_the_daemon(transactional_db):
    """Neither by what it raises, which may be input of a client, nor by what it prints."""
    queue.register_all()
    words = f"{_HOSTILE}\n{_LINE}"
    instance = types.error.using(max_retries=0).enqueue(words=words)
    done = subprocess.run(
        manage("atpd", "--drain", "-p", "1", "--log-format", "text", "-v", "2"),
        env=child_environment(),
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    instance.refresh_from_db()
    assert instance.state == State.FAILED
    lines = done.stderr.decode().splitlines()
    assert sum("failed, ERROR: " in line for line in lines) == 1
    own = re.compile(r"[\d-]{10} [\d:,]+ (DEBUG|INFO|WARNING|ERROR) +(\d+) ")
    pids = {found[2] for line in lines if (found := own.match(line))}
    assert pids
    assert "1" not in pids
    assert [ln for ln in lines if not own.match(ln) and not ln.startswith(("| ", "worker 0"))] == []


# What workers print: passed on in whole lines, never waited for, and not without end (G5)


@pytest.fixture
def hall(tmp_path, monkeypatch):
    """A worker that prints, and the file that it comes to."""
    told, clock = [], SimpleNamespace(now=1000.0)
    monkeypatch.setattr(inside.worker_output, "uptime", lambda: clock.now)
    monkeypatch.setattr(inside.journal, "prints_dropped", lambda **v: told.append(v), raising=False)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    prints = inside.WorkerOutput(lambda slot: None, log)
    prints.pen, prints.clock, prints.told = prints.open(0), clock, told
    prints.passed = (tmp_path / "log").read_bytes
    yield prints
    prints.close()
    os.close(log)
    os.close(prints.pen)


def say(hall, data):
    """Print, and let what waits be passed on."""
    os.write(hall.pen, data)
    hall.clock.now += inside.EVERY
    hall.forward(hall.descriptors())


def test_output_of_workers_is_passed_on_in_whole_lines(hall):
    say(hall, b"one\ntw")
    assert hall.passed() == b"worker 0: one\n"
    say(hall, b"o\n")
    assert hall.passed() == b"worker 0: one\nworker 0: two\n"
    say(hall, b"last words")
    hall.ended(0)
    assert hall.passed() == b"worker 0: one\nworker 0: two\nworker 0: last words\n"
    hall.ended(0)  # nothing of it is left


@pytest.mark.parametrize("line", [b"x" * 999 + b"\n", b"y\n"], ids=["long", "short"])
def test_too_much_output_is_dropped_and_counted(hall, line):
    for _ in range(100):
        say(hall, line * (60_000 // len(line)))
    assert inside.RATE <= len(hall.passed()) <= inside.RATE * 1.5
    assert set(hall.passed().split(b"\n")) == {b"worker 0: " + line[:-1], b""}
    hall.clock.now += 10
    hall.forward(hall.descriptors())
    assert [told["worker"] for told in hall.told] == [0, 0]  # that it begins, and how much it was
    # A second later there is room again.
    before = len(hall.passed())
    say(hall, line)
    assert len(hall.passed()) == before + len(b"worker 0: " + line)


def test_output_does_not_wait_for_a_full_log(hall, monkeypatch):
    def full(data):
        raise BlockingIOError

    monkeypatch.setattr(hall, "_write", full)
    for _ in range(100):
        say(hall, b"x" * 999 + b"\n")
    hall.ended(0)
    assert hall.passed() == b""
    assert sum(1 for _ in hall.told) >= 1


@pytest.mark.parametrize("is_json", [False, True])
def test_line_of_output_names_its_worker_and_instance_and_is_escaped(monkeypatch, is_json):
    """So it is one line for every reader."""
    uuid = UUID(int=7)
    printed = b"\x1b]0;title\x07 a\tb\r\nschl\xc3\xa4ft \xff\n"
    text = inside.marked(printed, worker=1, instance=uuid).decode()
    assert text == (
        f"worker 1 {uuid}: \\x1b]0;title\\x07 a\tb\nworker 1 {uuid}: schl\u00e4ft \\xff\n"
    )
    monkeypatch.setattr(inside.journal.Style, "is_json", is_json)
    hostile = "a\r\x85\u2028\x1c\x7f\u202e\u061cb\n"
    text = inside.marked(hostile.encode(), worker=1, instance=None).decode()
    assert len(text.splitlines()) == 1
    assert not set(text) & set("\r\x85\u2028\x7f\u202e\u061c")


def test_records_beyond_the_limit_of_the_queue_are_counted(monkeypatch):
    monkeypatch.setattr(inside.log_thread, "MOST_WAITING", 5)
    dropped, taken, stands, goes_on = [], [], threading.Event(), threading.Event()

    class Standing(logging.Handler):
        def emit(self, record):
            stands.set()
            goes_on.wait(60)
            taken.append(record.msg)

    logger = logging.getLogger("tests.standing")
    monkeypatch.setattr(logger, "handlers", [Standing()])
    monkeypatch.setattr(logger, "propagate", False)
    thread = inside.LogThread(lambda count: dropped.append(count))
    thread.start()
    try:
        logger.error("first")
        assert stands.wait(60)
        for number in range(8):
            logger.error(number)
        goes_on.set()
        thread.close()
    finally:
        inside.log_thread.loggers.stop()
    assert taken == ["first", 0, 1, 2, 3, 4]
    assert dropped == [3]
