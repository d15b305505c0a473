"""Settings of the drill: those of the demo, with the Types of the drill.

A daemon finds the drill's folder in ``DEMO_DIR``, the database in ``DATABASE_URL``, and its release
in ``DRILL_RELEASE``.
"""

from demo_project.settings import *  # noqa: F403
from demo_project.settings import DEMO_DIR, INSTALLED_APPS, env

INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app != "demo_project"), "tests.drill"]

ATP = {"RELEASE": env("DRILL_RELEASE"), "SCRATCH_DIR": str(DEMO_DIR)}
