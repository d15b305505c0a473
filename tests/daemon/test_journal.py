"""The daemon's log, as text and as JSON."""

import json
import logging
import re
import string

import pytest

from atp.daemon import journal


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
