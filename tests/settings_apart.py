"""Settings of a project whose queue has a database of its own, a SQLite file."""

from . import environment
from .settings import *  # noqa: F403
from .settings import ATP, DATABASES

DATABASES["queue"] = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": str(environment.folder() / "queue.sqlite3"),
    "OPTIONS": dict(environment.SQLITE_OPTIONS),
}
DATABASE_ROUTERS = ["atp.router.QueueRouter"]
ATP["DATABASE"] = "queue"

# The Types of the tests that are transactional, and the tailer of a table, are not run here.
SILENCED_SYSTEM_CHECKS = ["atp.E003", "atp.E022"]
