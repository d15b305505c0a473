"""Settings of the adapter and of its daemon: a Django project with ATP and its task."""

import os

import environ

DATABASES = {"default": environ.Env().db("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "atp", "benchmarks.arena"]
SECRET_KEY = "of a benchmark"
USE_TZ = True
# The other adapters call a worker stalled after 15 seconds, too.
ATP = {"LEASE": 15.0, "KILL_AFTER": 12.0, "RENEW_EVERY": 3.0}
# Where a handler reports its end.
ARENA_SOCKET = os.environ.get("ARENA_SOCKET", "")
ARENA_WORK = int(os.environ.get("JOB_WORK_MS", "1")) / 1000
