"""Runs the tests in their environment: ``python -m tests.conformance.running OUTCOME``.

The file is the outcome as JSON: of each test None, or what went wrong.
"""

import json
import os
import sys
import unittest
from pathlib import Path

import django
from django.test.runner import DiscoverRunner

from . import adapting
from .adapting import DUMMY, IMMEDIATE, KEPT

DRAINED = "tests.conformance.backends.Drained"
INLINE = "tests.conformance.backends.InlineBackend"


def suites():
    """Yield the name of each suite, and its module of Django's tests."""
    from atp.backend import ATPBackend

    from .backends import HAS_INLINE

    dummy = {DUMMY: KEPT}
    yield "tasks", adapting.load("tasks.test_tasks", dummy)
    yield "dummy", adapting.load("tasks.test_dummy_backend", dummy)
    yield "custom", adapting.load("tasks.test_custom_backend", dummy, derived=ATPBackend)
    immediate = "tasks.test_immediate_backend"
    yield "drained", adapting.load(immediate, {IMMEDIATE: DRAINED})
    if HAS_INLINE:
        yield "inline", adapting.load(immediate, {IMMEDIATE: INLINE})


class Outcome(unittest.TextTestResult):
    """Notes of each test whether it passed, by the name of its suite."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lines = {}

    def startTest(self, case):
        super().startTest(case)
        self.lines[name_of(case)] = None

    def _add(self, case, error):
        self.lines[name_of(case)] = self._exc_info_to_string(error, case)

    def addError(self, case, error):
        super().addError(case, error)
        self._add(case, error)

    def addFailure(self, case, error):
        super().addFailure(case, error)
        self._add(case, error)

    def addSubTest(self, case, sub, error):
        super().addSubTest(case, sub, error)
        if error is not None:
            self._add(case, error)


def name_of(case):
    return f"{case.suite_name}.{case._testMethodName}"


def _is_case(value, module):
    """Whether it is a class of test cases that the module itself defines."""
    is_class = isinstance(value, type) and issubclass(value, unittest.TestCase)
    return is_class and value.__module__ == module.__name__


def main(outcome):
    if os.environ.get("CONFORMANCE_BACKPORT"):
        adapting.use_backport()
    django.setup()
    loader, cases = unittest.TestLoader(), unittest.TestSuite()
    for name, module in suites():
        for value in vars(module).values():
            if _is_case(value, module):
                value.suite_name = name
                cases.addTests(loader.loadTestsFromTestCase(value))
    runner = DiscoverRunner(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        with open(os.devnull, "w") as silence:
            ended = unittest.TextTestRunner(silence, resultclass=Outcome).run(cases)
    finally:
        runner.teardown_databases(databases)
    Path(outcome).write_text(json.dumps(ended.lines))


if __name__ == "__main__":
    main(sys.argv[1])
