"""A backend for ``django.tasks`` in Django 6, and for its backport, the package django-tasks::

    TASKS = {"default": {"BACKEND": "atp.backend.ATPBackend"}}

Other parts of ATP import this package only where TASKS names it, so a project without TASKS never
loads ``django.tasks``.
"""

from .backend import ATPBackend
from .running import ATPTaskContext
from .task import ATPTask

__all__ = ["ATPBackend", "ATPTask", "ATPTaskContext"]
