"""Changes to Django's tests that are made on import, so that their files stay as they are.

The test cases derive from TransactionTestCase, because the backend has tables: the event loop of
an async test and a daemon use other connections. The settings name ATP's backend instead of
DummyBackend and ImmediateBackend. Backends that a test derives from BaseTaskBackend derive from
ATPBackend. With the backport, ``django.tasks`` is called ``django_tasks``, also as a logger, and
its exceptions have other names.
"""

import importlib
import logging
import sys
from unittest import mock

from django import test

KEPT = "tests.conformance.backends.Kept"
DUMMY, IMMEDIATE = "backends.dummy.DummyBackend", "backends.immediate.ImmediateBackend"
PACKAGE, BACKPORT = "django.tasks", "django_tasks"
MODULES = ("", ".base", ".exceptions", ".signals", ".backends", ".backends.base")
MODULES += (".backends.dummy", ".backends.immediate")


def load(module, backends, *, derived=None):
    """Return a separately imported module of Django's tests.

    ``backends`` maps the last part of each Django backend's path to the backend to use instead.
    ``derived`` replaces BaseTaskBackend as a base class.
    """
    base = importlib.import_module(f"{PACKAGE}.backends.base")
    sys.modules.pop(module, None)
    with (
        mock.patch.object(test, "SimpleTestCase", test.TransactionTestCase),
        mock.patch.object(test, "override_settings", _overriding(backends)),
        mock.patch.object(base, "BaseTaskBackend", derived or base.BaseTaskBackend),
    ):
        return importlib.import_module(module)


def _overriding(backends):
    def replacement(path):
        return next((other for end, other in backends.items() if path.endswith(end)), path)

    class Overridden(test.override_settings):
        def __init__(self, **options):
            if "TASKS" in options:
                options["TASKS"] = {
                    alias: entry | {"BACKEND": replacement(entry["BACKEND"])}
                    for alias, entry in options["TASKS"].items()
                }
            super().__init__(**options)

    return Overridden


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
