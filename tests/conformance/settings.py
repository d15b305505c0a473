"""Settings of the conformance runs: ATP on a SQLite file.

Django's tests override TASKS; a daemon that a test starts uses the TASKS of this module.
"""

import json
import logging
import os
from pathlib import Path

FOLDER = Path(os.environ["CONFORMANCE_DIR"])

SECRET_KEY = "of the tests only"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "atp"]
if os.environ.get("CONFORMANCE_BACKPORT"):
    INSTALLED_APPS.append("django_tasks")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
_NAME = str(FOLDER / "tests.sqlite3")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("CONFORMANCE_DATABASE", _NAME),
        "TEST": {"NAME": _NAME},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
        },
    }
}
USE_TZ = True
MEDIA_ROOT = FOLDER / "media"
ATP = {"SCRATCH_DIR": str(FOLDER), "MAX_RETRIES": 0, "POLL_EVERY": 0.2}
TASKS = {
    "default": {
        "BACKEND": "tests.conformance.backends.Kept",
        "QUEUES": [],
        "OPTIONS": {"modules": ["tasks.tasks"]},
    }
}


class Writer(logging.FileHandler):
    """A log handler that writes each record to a file as a line of JSON."""

    def format(self, record):
        names = ("name", "levelno", "levelname")
        text = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        facts = {name: getattr(record, name) for name in names}
        return json.dumps({**facts, "msg": record.getMessage(), "exc_text": text})


# A daemon writes here what the logger of django.tasks is told in its workers.
if "CONFORMANCE_LOG" in os.environ:
    LOGGING = {
        "version": 1,
        "handlers": {
            "file": {
                "class": "tests.conformance.settings.Writer",
                "filename": os.environ["CONFORMANCE_LOG"],
            }
        },
        "loggers": {
            name: {"handlers": ["file"], "level": "DEBUG"}
            for name in ("django.tasks", "django_tasks")
        },
    }
