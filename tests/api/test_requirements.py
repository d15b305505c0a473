"""A missing package of the API is reported before an import fails."""

from atp import api

from ..helpers import child_environment
from .client import run_script

SCRIPT = """
import json
import sys
import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "atp"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
told = {}
for module in sys.argv[1:]:
    sys.modules[module] = None  # cannot be imported
    django.setup()
    try:
        import atp.api.urls
    except ImproperlyConfigured as error:
        told[module] = str(error)
    del sys.modules[module]
print(json.dumps(told))
"""


def test_a_missing_package_is_named_when_the_api_is_imported():
    """The app ``atp`` itself loads without the package."""
    environment = {k: v for k, v in child_environment().items() if k != "DJANGO_SETTINGS_MODULE"}
    told = run_script(SCRIPT, *api.PACKAGES, env=environment)
    assert told == {
        module: f"The API of ATP needs {package}: install ATP with its extra [web]."
        for module, package in api.PACKAGES.items()
    }
