"""The Django app configuration of ATP, which imports tasks and registers checks and Types."""

from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.apps import apps as all_apps
from django.apps.registry import Apps
from django.conf import settings
from django.db import connections
from django.db.models import Model
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class ATPConfig(AppConfig):
    name = "atp"
    verbose_name = "Asynchronous Task Processing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401 (registers the checks)

        autodiscover_modules("tasks")
        _import_modules_of_tasks()
        _import_senders()
        post_migrate.connect(_register_types, sender=self)


def _import_modules_of_tasks() -> None:
    """Import the modules in ``OPTIONS["modules"]`` of each entry of the setting TASKS."""
    tasks = getattr(settings, "TASKS", None) or {}
    entries = {
        alias: entry
        for alias, entry in tasks.items()
        if entry.get("OPTIONS", {}).get("modules") and "BACKEND" in entry
    }
    if entries:
        from .backend.backend import import_modules

        import_modules(entries)


def _import_senders() -> None:
    """Import the modules whose Types send messages, if the project has somebody to send them to."""
    values = getattr(settings, "ATP", {})
    if isinstance(values, dict) and values.get("WEBHOOKS"):
        import_module("atp.webhooks")
    if isinstance(values, dict) and values.get("OGC_HOSTS"):
        import_module("atp.ogc.callbacks")


def _register_types(using: str, apps: Apps = all_apps, **kwargs: Any) -> None:
    """Register the declared Types after ``migrate`` has run on the queue's own database."""
    from . import queue
    from .conf import settings as atp_settings
    from .store.common.base import keep_ahead

    # If a migration back has removed tables or columns, write nothing.
    if using == atp_settings.DATABASE and _has_all_tables(apps):
        queue.register_all()
        queue.retire_schedules()
        keep_ahead(connections[using])


def _has_all_tables(apps: Apps) -> bool:
    """Return True if ``apps`` has every table and column of ATP's models.

    ``apps`` are the models as the migrations have left them in the database.
    """
    migrated = apps.all_models["atp"]
    return all(
        (name := model._meta.model_name) in migrated and _columns(model) == _columns(migrated[name])
        for model in all_apps.get_app_config("atp").get_models()
    )


def _columns(model: type[Model]) -> set[str | None]:
    return {field.column for field in model._meta.local_fields}
