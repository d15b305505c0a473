"""A Django project with as little as an app that is a task queue needs, and rows to save."""

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


def save(number):
    """Read a row by the ORM, add one and save it: the body of every task of the ORM's.

    Each task has a row of its own, so none is lost where two are at it at once.
    """
    from benchmarks.models import add_one

    add_one(number)
    # One in so many tells when it has saved its row.
    base.noop(number)


class Driver(base.Driver):
    """Of a queue whose tables are made by migrations, and that commits by itself."""

    async def prepare(self):
        call_command("migrate", verbosity=0)

    async def enqueue_save(self, number):
        """Enqueue one task that calls :func:`save`."""
        raise NotImplementedError

    async def fill(self, numbers):
        from django.db import transaction

        with transaction.atomic():
            await super().fill(numbers)

    async def fill_saves(self, numbers):
        """Make a row for each number, which is its key, and enqueue a task for each."""
        from django.db import connection, transaction

        from benchmarks.models import Counter

        with connection.schema_editor() as editor:
            editor.create_model(Counter)
        with transaction.atomic():
            Counter.objects.bulk_create(Counter(pk=number) for number in numbers)
            for number in numbers:
                await self.enqueue_save(number)


def _database(options):
    # Without that some connect anew for every task.
    kept = {"CONN_MAX_AGE": None} if base.keeps_connections() else {}
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
