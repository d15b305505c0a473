"""Finding tasks that are not in ``tasks.py`` of an installed app: ``OPTIONS["modules"]``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.utils.module_loading import import_string


def import_modules(entries: dict[str, Any]) -> None:
    """Import the modules that ``OPTIONS["modules"]`` names in each entry of TASKS for ATPBackend.

    A module that does not exist is skipped: the system check reports it.
    """
    from .backend import ATPBackend
    from .options import BackendOptions

    for alias, entry in entries.items():
        if issubclass(import_string(entry["BACKEND"]), ATPBackend):
            for module in BackendOptions(alias, entry["OPTIONS"]).modules:
                import_module(module)
