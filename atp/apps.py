"""The Django app."""

from django.apps import AppConfig
from django.apps import apps as all_apps
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class ATPConfig(AppConfig):
    name = "atp"
    verbose_name = "Asynchronous Task Processing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self):
        from . import checks  # noqa: F401 (registers the checks)

        autodiscover_modules("tasks")
        post_migrate.connect(_register_types, sender=self)


def _register_types(using, apps=all_apps, **kwargs):
    """Write the declared Types when the queue's own database has been migrated."""
    from . import queue
    from .conf import settings

    # Not after a migration back: then there is no such model.
    if using == settings.DATABASE and "limit" in apps.all_models["atp"]:
        queue.register_all()
