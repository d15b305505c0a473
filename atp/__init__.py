"""ATP: asynchronous task processing for Django, with the database as the queue."""

from importlib import import_module

__version__ = "0.1.0"

# Loaded when first used: this package is imported by Django before models can be.
_PUBLIC = {
    "task_type": "registry",
    "TaskType": "registry",
    "Output": "context",
    "Retry": "exceptions",
    "Defer": "exceptions",
    "Fatal": "exceptions",
    "Interrupted": "exceptions",
}
__all__ = list(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__():
    return sorted([*globals(), *_PUBLIC])
