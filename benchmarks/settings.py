"""Settings of the benchmarks: those of the demo, with Types of their own instead of its tasks.

A process that a benchmark starts finds its database by ``BENCHMARK_DATABASE``,
and what goes over ``settings.ATP`` in ``BENCHMARK_ATP``.
"""

import json

from demo_project.settings import *  # noqa: F403
from demo_project.settings import DATABASES, INSTALLED_APPS, env

INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app != "demo_project"), "benchmarks"]

if env("BENCHMARK_DATABASE", default=""):
    DATABASES["default"]["NAME"] = env("BENCHMARK_DATABASE")

DATABASES["default"]["CONN_MAX_AGE"] = json.loads(env("BENCHMARK_CONN_MAX_AGE", default="0"))

ATP = json.loads(env("BENCHMARK_ATP", default="{}"))
