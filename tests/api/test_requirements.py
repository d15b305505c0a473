"""What the API needs is told before an import fails."""

import subprocess
import sys

import pytest

from atp import api

from ..helpers import child_environment

BLOCKED = """
import sys

sys.modules[{module!r}] = None  # cannot be imported
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "atp"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
django.setup()
import atp.api.urls
"""


@pytest.mark.parametrize("module", api.PACKAGES)
def test_what_is_missing_is_named(module):
    """Nothing else of ATP needs it: the app itself loads."""
    source = BLOCKED.format(module=module)
    environment = {k: v for k, v in child_environment().items() if k != "DJANGO_SETTINGS_MODULE"}
    run = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False
    )
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("django.core.exceptions.ImproperlyConfigured: The API of ATP needs ")
    assert api.PACKAGES[module] in last
    assert last.endswith("install ATP with its extra [web].")


def test_nothing_is_missing_here():
    assert api.missing() is None
