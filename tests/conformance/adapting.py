"""What is changed of Django's tests while they are imported, and nothing in their files.

- Their cases derive from TransactionTestCase: a backend with tables needs a database, which the
  event loop of an async test uses by another connection, and a daemon by that of a process.
- The settings name ATP's backend instead of DummyBackend and ImmediateBackend.
- A backend that a test derives from BaseTaskBackend derives from ATPBackend.
- On the backport ``django.tasks`` is ``django_tasks``, also as the name of the logger; its
  exceptions have other names.
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
    """Return a module of Django's tests, which is imported for this alone.

    ``backends`` maps the ends of the paths of Django's backends to those to be used, and
    ``derived`` is what takes the place of BaseTaskBackend.
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
    class Overridden(test.override_settings):
        def __init__(self, **options):
            if "TASKS" in options:
                options["TASKS"] = {
                    alias: entry | {"BACKEND": _backend(entry["BACKEND"], backends)}
                    for alias, entry in options["TASKS"].items()
                }
            super().__init__(**options)

    return Overridden


def _backend(path, backends):
    for ending, other in backends.items():
        if path.endswith(ending):
            return other
    return path


def use_backport():
    """Let ``django.tasks`` be the backport, in this process."""
    for name in MODULES:
        sys.modules[PACKAGE + name] = importlib.import_module(BACKPORT + name)
    # It keeps this name in a module.
    sys.modules[PACKAGE].Task = sys.modules[f"{PACKAGE}.base"].Task
    exceptions = sys.modules[f"{PACKAGE}.exceptions"]
    for name in ("InvalidTask", "InvalidTaskBackend"):
        if not hasattr(exceptions, name):
            setattr(exceptions, name, getattr(exceptions, f"{name}Error"))
    logging.root.manager.loggerDict[PACKAGE] = logging.getLogger(BACKPORT)
