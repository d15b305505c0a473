"""Tests of the backend for django.tasks, with Django's own package or its backport."""

from importlib import import_module
from importlib.util import find_spec

if find_spec("django.tasks"):
    PACKAGE = "django.tasks"
elif find_spec("django_tasks"):
    PACKAGE = "django_tasks"
else:
    # Daemons import this package, too, and have no use for it.
    import pytest

    pytest.skip(
        "neither django.tasks (Django 6) nor django_tasks (pip install django-tasks) is there",
        allow_module_level=True,
    )

# It makes the backends anew when a test changes TASKS, and is imported with a task's first end.
import_module(f"{PACKAGE}.signals")
