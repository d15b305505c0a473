"""The testing kit: what a test asks of the queue, and how it runs what is enqueued.

``atp`` is a fixture of pytest, :class:`QueueMixin` the same for Django's TestCase, and
``TASKS = {"default": {"BACKEND": "atp.testing.InlineBackend"}}`` for code that uses
``django.tasks``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Loaded when first used: pytest imports this package before Django is set up.
_PUBLIC = {
    "Kit": "kit",
    "QueueMixin": "mixin",
    "Run": "draining.runs",
    "Fault": "draining.faults",
    "MemoryContext": "memory",
    "DaemonProcess": "daemon",
    "DaemonFailed": "errors",
    "EndlessDrain": "errors",
    "NotPossible": "errors",
    "InlineBackend": "backend",
}
__all__ = list(_PUBLIC)

if TYPE_CHECKING:
    from .backend import InlineBackend as InlineBackend
    from .daemon import DaemonProcess as DaemonProcess
    from .draining.faults import Fault as Fault
    from .draining.runs import Run as Run
    from .errors import DaemonFailed as DaemonFailed
    from .errors import EndlessDrain as EndlessDrain
    from .errors import NotPossible as NotPossible
    from .kit import Kit as Kit
    from .memory import MemoryContext as MemoryContext
    from .mixin import QueueMixin as QueueMixin


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
