"""Runs the tests in their environment: ``python -m tests.conformance.running OUTCOME``.

The file OUTCOME gets a JSON object that maps each test to None or to its failure.
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
INLINE = "atp.testing.InlineBackend"


def suites():
    """Yield the name of each suite, and its module of Django's tests."""
    from atp.backend import ATPBackend

    dummy = {DUMMY: KEPT}
    yield "tasks", adapting.load("tasks.test_tasks", dummy)
    yield "dummy", adapting.load("tasks.test_dummy_backend", dummy)
    yield "custom", adapting.load("tasks.test_custom_backend", dummy, derived=ATPBackend)
    immediate = "tasks.test_immediate_backend"
    yield "drained", adapting.load(immediate, {IMMEDIATE: DRAINED})
    yield "inline", adapting.load(immediate, {IMMEDIATE: INLINE})


def name_of(case):
    """Return ``suite.test``, also for a subtest that failed."""
    case = getattr(case, "test_case", case)
    return f"{case.suite_name}.{case._testMethodName}"


def main(outcome):
    if os.environ.get("CONFORMANCE_BACKPORT"):
        adapting.use_backport()
    django.setup()
    cases = []
    for name, module in suites():
        for suite in unittest.TestLoader().loadTestsFromModule(module):
            for case in suite:
                case.suite_name = name
                cases.append(case)
    lines = dict.fromkeys(map(name_of, cases))
    runner = DiscoverRunner(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        with open(os.devnull, "w") as silence:
            ended = unittest.TextTestRunner(silence).run(unittest.TestSuite(cases))
    finally:
        runner.teardown_databases(databases)
    lines |= {name_of(case): told for case, told in ended.errors + ended.failures}
    Path(outcome).write_text(json.dumps(lines))


if __name__ == "__main__":
    main(sys.argv[1])
