"""A Django project with as little as an app that is a task queue needs."""

import os

import django
from django.conf import settings
from django.core.management import call_command

from . import base

# What SQLite needs to be a queue, and no less durable than PostgreSQL.
_SQLITE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}


def set_up(*apps, options=None, **more):
    """Make this process one of the project. ``options`` are of PostgreSQL connections."""
    # The coroutines of drivers of Django apps never wait, so nothing is in the way of the ORM.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    settings.configure(
        SECRET_KEY="of a benchmark",
        DATABASES={"default": _database(options or {})},
        INSTALLED_APPS=["django.contrib.contenttypes", *apps],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        LOGGING={
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"stderr": {"class": "logging.StreamHandler"}},
            "root": {"handlers": ["stderr"], "level": "WARNING"},
        },
        **more,
    )
    django.setup()


class Driver(base.Driver):
    """Of a queue whose tables are made by migrations, and that commits by itself."""

    async def prepare(self):
        call_command("migrate", verbosity=0)

    async def fill(self, numbers):
        from django.db import transaction

        with transaction.atomic():
            await super().fill(numbers)


def _database(options):
    # Connections are kept, or some would connect anew for every task.
    kept = {"CONN_MAX_AGE": None}
    place = base.store()
    if base.option("store") == "sqlite":
        return kept | {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": place["path"],
            "OPTIONS": _SQLITE,
        }
    return kept | {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": place["dbname"],
        "HOST": place["host"],
        "PORT": place["port"],
        "USER": place["user"],
        "PASSWORD": place["password"],
        "OPTIONS": options,
    }
