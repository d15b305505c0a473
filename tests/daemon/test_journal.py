"""The daemon's log, as text and as JSON."""

import json
import logging
import re
import string
import subprocess
import sys

import pytest

from atp import queue
from atp.daemon import journal
from atp.daemon.system.stderr import NonBlockingHandler, NonBlockingStream
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, manage


@pytest.fixture
def caught(monkeypatch):
    records = []

    class Catch(logging.Handler):
        def emit(self, record):
            records.append(record)

    handler = Catch()
    journal.logger.addHandler(handler)
    monkeypatch.setattr(journal.logger, "propagate", False)
    level = journal.logger.level
    journal.logger.setLevel(logging.DEBUG)
    yield records
    journal.logger.setLevel(level)
    journal.logger.removeHandler(handler)


@pytest.mark.parametrize("fact", sorted(journal.FACTS))
def test_every_fact_can_be_told(caught, fact):
    """As text and as JSON, with the values that its words name."""
    _, words = journal.FACTS[fact]
    names = {
        name: 1.5 if spec else "ü"
        for _, name, spec, _ in string.Formatter().parse(words)
        if name is not None
    }
    getattr(journal, fact)(**names)
    [record] = caught
    line = json.loads(journal.JSONFormatter().format(record))
    assert line["fact"] == fact
    assert line["message"] == record.getMessage()
    assert {name: line[name] for name in names} == names
    text = journal.TextFormatter().format(record)
    assert re.match(r"[\d-]+ [\d:,]+ (DEBUG|INFO|WARNING|ERROR) +\d+ ", text)


def test_unknown_facts_are_mistakes():
    with pytest.raises(AttributeError):
        _ = journal.no_such_fact


def test_every_fact_that_code_tells_is_in_the_table():
    """And the other way round: no words that nobody says."""
    from pathlib import Path

    source = "".join(p.read_text() for p in Path(journal.__file__).parent.rglob("*.py"))
    told = set(re.findall(r"journal\.([a-z_]+)", source)) - {
        "logger",
        "configure",
        "tells",
        "FACTS",
    }
    assert told == set(journal.FACTS)


@pytest.mark.parametrize(("verbosity", "level"), [(0, "WARNING"), (1, "INFO"), (2, "DEBUG")])
def test_configure(monkeypatch, verbosity, level):
    logger = logging.getLogger("atp")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(journal.Style, "is_json", False)
    before = logger.level
    journal.configure("json", verbosity)
    after = logger.level
    logger.setLevel(before)
    assert logging.getLevelName(after) == level
    assert isinstance(logger.handlers[0].formatter, journal.JSONFormatter)


def test_a_project_may_have_its_own_handlers(monkeypatch):
    logger = logging.getLogger("atp")
    own = [logging.NullHandler()]
    monkeypatch.setattr(logger, "handlers", own)
    monkeypatch.setattr(journal.Style, "is_json", False)
    journal.configure(None)
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


@pytest.mark.parametrize("fact", sorted(journal.FACTS))
def test_no_value_of_a_fact_starts_a_line(caught, fact):
    """Neither in the daemon's own log, nor in one that the project formats."""
    _, words = journal.FACTS[fact]
    names = {
        name: 1.5 if spec else _HOSTILE
        for _, name, spec, _ in string.Formatter().parse(words)
        if name is not None
    }
    getattr(journal, fact)(exc_info=_raised()[1], **names)
    [record] = caught
    for formatter in (journal.TextFormatter(), logging.Formatter("20 %(message)s")):
        text = formatter.format(record)
        assert _starts(text) <= {"20", "| "}
        assert len([line for line in text.splitlines() if line.startswith("20")]) == 1
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_record_of_other_code_starts_one_line():
    """Also after another formatter has formatted its traceback."""
    record = logging.LogRecord("atp.x", 40, "", 0, "%s", (_HOSTILE,), _raised(), sinfo=_HOSTILE)
    logging.Formatter().format(record)
    text = journal.TextFormatter().format(record)
    first, *others = text.splitlines()
    assert first.startswith("20")
    assert {line[:2] for line in others} == {"| "}
    assert "| Traceback (most recent call last):" in others
    assert not re.search("[\x1b\x7f-\x9f\u061c\u202e\u2066]", text)


def test_a_json_line_is_one_line_for_every_reader():
    record = logging.LogRecord("atp.x", 40, "", 0, "%s", (_HOSTILE,), _raised())
    record.fact, record.values = "failed", {"why": _HOSTILE}
    text = journal.JSONFormatter().format(record)
    assert len(text.splitlines()) == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u061c\u202e\u2066]", text)
    line = json.loads(text)
    assert (line["why"], line["message"]) == (_HOSTILE, _HOSTILE)
    assert _HOSTILE in line["traceback"]


def test_what_libraries_print_in_the_dispatcher_is_marked(tmp_path):
    """Python, threads and libraries write to sys.stderr what they like, in pieces."""
    with (tmp_path / "log").open("wb") as log:
        stream = NonBlockingStream(log.fileno())
        for piece in ("half", f" {_HOSTILE}", "\n", f"{_LINE}\n{_LINE}"):
            stream.write(piece)
        stream.flush()
    text = (tmp_path / "log").read_text()
    assert _starts(text) == {"| "}
    assert text.startswith("| half a\n| 2026")


def test_a_line_that_cannot_be_formatted_starts_no_other(tmp_path):
    class Broken(logging.Formatter):
        def format(self, record):
            raise ValueError(_HOSTILE)

    with (tmp_path / "log").open("wb") as log:
        handler = NonBlockingHandler(log.fileno())
        handler.setFormatter(Broken())
        handler.handle(logging.LogRecord("atp.x", 40, "", 0, "", (), None))
    first, *others = (tmp_path / "log").read_text().splitlines()
    assert first == "atp.x: a line could not be logged"
    assert {line[:2] for line in others} == {"| "}


def test_a_handler_forges_no_line_of_a_daemon(transactional_db):
    """Neither by what it raises, which may be a client's input, nor by what it prints."""
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
