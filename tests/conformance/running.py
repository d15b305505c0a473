"""Runs Django's tests in their environment: ``python -m tests.conformance.running OUTCOME``.

The file OUTCOME gets a JSON object that maps each test to None or to its failure.

The modules of the tests are changed on import, so that their files stay as they are. The test
cases derive from TransactionTestCase, because the backend has tables: the event loop of an async
test and a daemon use other connections. The settings name ATP's backend instead of DummyBackend
and ImmediateBackend. Backends that a test derives from BaseTaskBackend derive from ATPBackend.
With the backport, ``django.tasks`` is called ``django_tasks``, also as a logger, and its
exceptions have other names.
"""

import importlib
import json
import logging
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

import django
from django import test
from django.test.runner import DiscoverRunner

KEPT, DRAINED = "tests.conformance.backends.Kept", "tests.conformance.backends.Drained"
INLINE = "atp.testing.InlineBackend"
DUMMY, IMMEDIATE = "backends.dummy.DummyBackend", "backends.immediate.ImmediateBackend"
PACKAGE, BACKPORT = "django.tasks", "django_tasks"
MODULES = ("", ".base", ".exceptions", ".signals", ".backends", ".backends.base")
MODULES += (".backends.dummy", ".backends.immediate")


def suites():
    """Yield the name of each suite, and its module of Django's tests."""
    from atp.backend import ATPBackend

    yield "tasks", load("test_tasks", DUMMY, KEPT)
    yield "dummy", load("test_dummy_backend", DUMMY, KEPT)
    yield "custom", load("test_custom_backend", DUMMY, KEPT, derived=ATPBackend)
    yield "drained", load("test_immediate_backend", IMMEDIATE, DRAINED)
    yield "inline", load("test_immediate_backend", IMMEDIATE, INLINE)


def load(module, replaced, backend, *, derived=None):
    """Return a separately imported module of Django's tests.

    It uses ``backend`` instead of Django's backend whose path ends with ``replaced``, and
    ``derived`` instead of BaseTaskBackend as a base class.
    """

    class Overridden(test.override_settings):
        def __init__(self, **options):
            if "TASKS" in options:
                options["TASKS"] = {
                    alias: entry | ({"BACKEND": backend} if is_replaced(entry) else {})
                    for alias, entry in options["TASKS"].items()
                }
            super().__init__(**options)

    def is_replaced(entry):
        return entry["BACKEND"].endswith(replaced)

    base = importlib.import_module(f"{PACKAGE}.backends.base")
    sys.modules.pop(f"tasks.{module}", None)
    with (
        mock.patch.object(test, "SimpleTestCase", test.TransactionTestCase),
        mock.patch.object(test, "override_settings", Overridden),
        mock.patch.object(base, "BaseTaskBackend", derived or base.BaseTaskBackend),
    ):
        return importlib.import_module(f"tasks.{module}")


def use_backport():
    """Make ``django.tasks`` an alias for the backport in this process."""
    for name in MODULES:
        sys.modules[PACKAGE + name] = importlib.import_module(BACKPORT + name)
    # It keeps this name in a module.
    sys.modules[PACKAGE].Task = sys.modules[f"{PACKAGE}.base"].Task
    exceptions = sys.modules[f"{PACKAGE}.exceptions"]
    for name in ("InvalidTask", "InvalidTaskBackend"):
        if not hasattr(exceptions, name):
            setattr(exceptions, name, getattr(exceptions, f"{name}Error"))
    logging.root.manager.loggerDict[PACKAGE] = logging.getLogger(BACKPORT)


def name_of(case):
    """Return ``suite.test``, also for a subtest that failed."""
    case = getattr(case, "test_case", case)
    return f"{case.suite_name}.{case._testMethodName}"


def main(outcome):
    if os.environ.get("CONFORMANCE_BACKPORT"):
        use_backport()
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
