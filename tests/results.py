"""The outcome of each test, written as it comes: the option ``--results`` of pytest.

``--results=FILE``
    Each test writes a line to FILE when it begins, and one with its outcome when it has ended.
    So a test that ends its own process is known, too.
``--these=FILE``
    Only the tests whose ids stand in FILE, one a line, are run.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from .daemon.warm import Warm

# Of a failure, so much is kept: the lines of its message, and the last ones of its traceback.
MESSAGE_LINES = 4
LAST_LINES = 6


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one test: ``passed``, ``failed`` or ``skipped``; ``why`` is a failure's text.

    ``is_test`` is False for a module that could not be collected. ``processor`` are its seconds.
    """

    id: str
    outcome: str
    seconds: float = 0.0
    processor: float = 0.0
    why: str = ""
    is_test: bool = True


def add_options(parser):
    group = parser.getgroup("atp")
    group.addoption("--results", metavar="FILE", help="write the outcome of each test to it")
    group.addoption("--these", metavar="FILE", help="run only the tests that it names")


def configure(config):
    if config.option.results:
        config.pluginmanager.register(Writing(config.option.results))


def select(config, items):
    """Take out what ``--these`` does not name."""
    if config.option.these:
        named = {*Path(config.option.these).read_text().splitlines()}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in named])
        items[:] = [item for item in items if item.nodeid in named]


class Writing:
    """Writes the results of one process of pytest."""

    def __init__(self, path):
        self._file = Path(path).open("a", encoding="utf-8")
        self._owner = os.getpid()
        self._parts, self._used = [], 0.0

    def pytest_runtest_logstart(self, nodeid):
        self._parts, self._used = [], _processor()
        self._write({"begun": nodeid})

    def pytest_runtest_logreport(self, report):
        self._parts.append(report)
        if report.when == "teardown":
            self._write(vars(_result(self._parts, _processor() - self._used)))

    def pytest_collectreport(self, report):
        if report.failed:
            failed = Result(id=report.nodeid, outcome="failed", why=_reason(report), is_test=False)
            self._write(vars(failed))

    def _write(self, line):
        # A process that a test forks may come here too, by an exception that nobody has caught.
        if os.getpid() == self._owner:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def _processor():
    """Return the seconds of processor that this process, its ended children and daemons used."""
    return sum(os.times()[:4]) + Warm.used


def _result(reports, processor):
    """Return the result of a test of whose parts these are the reports."""
    failed = [report for report in reports if report.failed]
    skipped = any(report.skipped for report in reports)
    return Result(
        id=reports[0].nodeid,
        outcome="failed" if failed else "skipped" if skipped else "passed",
        seconds=sum(report.duration for report in reports),
        processor=processor,
        why="\n".join(map(_reason, failed)),
    )


def _reason(report):
    """Return the message of a failure, and the lines where it happened."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext.splitlines()
    message = crash.message.splitlines() if crash else text
    return "\n".join([*message[:MESSAGE_LINES], "…", *text[-LAST_LINES:]])


def read(path):
    """Return the Results that pytest wrote to ``path``, none if there is no such file."""
    found, begun = {}, None
    if not Path(path).exists():
        return []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        if "begun" in told:
            begun = told["begun"]
        else:
            begun = None
            found[told["id"]] = Result(**told)
    if begun is not None:
        found[begun] = Result(id=begun, outcome="failed", why="its process ended during this test")
    return list(found.values())
