"""The check of the setting TASKS, for its entries that name ATPBackend."""

import sys

from django.conf import settings
from django.core.checks import Tags, register
from django.utils.module_loading import import_string

from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_tasks(app_configs, **kwargs):
    """Check OPTIONS and QUEUES of each entry of TASKS for ATPBackend.

    The backend's own ``check()`` would not do: ``atpd`` does not run the checks of
    ``django.tasks``, and the backport has none unless it is an installed app itself.
    """
    return [
        message
        for alias, entry in _entries()
        for message in _messages(alias, entry.get("QUEUES") or (), entry.get("OPTIONS", {}))
    ]


def _entries():
    """Yield alias and entry for each entry of ATPBackend. Others may load ``django.tasks``."""
    tasks = getattr(settings, "TASKS", None)
    for alias, entry in tasks.items() if isinstance(tasks, dict) else ():
        try:
            found = import_string(entry["BACKEND"])
        except (AttributeError, ImportError, KeyError, TypeError):
            continue  # django.tasks reports it
        own = sys.modules.get("atp.backend")
        if own is not None and isinstance(found, type) and issubclass(found, own.ATPBackend):
            yield alias, entry


def _messages(alias, queues, given):
    from ..backend import checks
    from ..backend.options import BackendOptions

    return checks.messages(alias, queues, BackendOptions(f"TASKS[{alias!r}]['OPTIONS']", given))
