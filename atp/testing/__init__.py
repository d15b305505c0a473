"""The testing kit asserts what is enqueued, and runs enqueued Tasks in the test's process.

Use the fixture ``atp`` with pytest, :class:`QueueMixin` with Django's TestCase, and
``TASKS = {"default": {"BACKEND": "atp.testing.InlineBackend"}}`` for code that uses
``django.tasks``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .attempt import Fault as Fault
    from .attempt import NotPossible as NotPossible
    from .backend import InlineBackend as InlineBackend
    from .daemon import DaemonFailed as DaemonFailed
    from .daemon import DaemonProcess as DaemonProcess
    from .draining import EndlessDrain as EndlessDrain
    from .draining import Run as Run
    from .kit import Kit as Kit
    from .kit import QueueMixin as QueueMixin
    from .memory import MemoryContext as MemoryContext


# Loaded on first use, because pytest imports this package before Django is set up.
_PUBLIC = {
    "Kit": "kit",
    "QueueMixin": "kit",
    "Run": "draining",
    "Fault": "attempt",
    "MemoryContext": "memory",
    "DaemonProcess": "daemon",
    "DaemonFailed": "daemon",
    "EndlessDrain": "draining",
    "NotPossible": "attempt",
    "InlineBackend": "backend",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
