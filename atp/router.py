"""A database router for projects that keep the queue in a separate database."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model

from .conf import settings


class QueueRouter:
    """Route ATP's models to the alias ``ATP["DATABASE"]``, and create no other tables there.

    Add the router to DATABASE_ROUTERS if that alias is not "default". If models of your project are
    in that database too, list their router before this one.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return settings.DATABASE if model._meta.app_label == "atp" else None

    db_for_write = db_for_read

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool | None:
        ours = {first._meta.app_label == "atp", second._meta.app_label == "atp"}
        return True if ours == {True} else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        if app_label == "atp":
            return db == settings.DATABASE
        return False if db == settings.DATABASE != DEFAULT_DB_ALIAS else None
