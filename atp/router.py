"""A database router for projects that keep the queue on an alias of its own."""

from .conf import settings


class QueueRouter:
    """Sends ATP's models to ``ATP["DATABASE"]``, and only there.

    To be named in DATABASE_ROUTERS when that is not "default".
    """

    def db_for_read(self, model, **hints):
        return settings.DATABASE if model._meta.app_label == "atp" else None

    db_for_write = db_for_read

    def allow_relation(self, first, second, **hints):
        ours = {first._meta.app_label == "atp", second._meta.app_label == "atp"}
        return True if ours == {True} else None

    def allow_migrate(self, db, app_label, **hints):
        return db == settings.DATABASE if app_label == "atp" else None
