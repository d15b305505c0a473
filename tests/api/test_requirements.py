"""What a project can do without the extra [web]: use templates, and read what is missing."""

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


TEMPLATE = """
import json
import sys
import django
from django.conf import settings
from django.template import engines
for module in sys.argv[1:]:
    sys.modules[module] = None  # cannot be imported
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "atp"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
django.setup()
print(json.dumps(engines["django"].from_string("Hello {{ name }}").render({"name": "you"})))
"""


def test_templates_of_a_project_need_no_package_of_the_pages():
    """Django imports the template tags of all apps for the first template."""
    environment = {k: v for k, v in child_environment().items() if k != "DJANGO_SETTINGS_MODULE"}
    packages = [*api.PACKAGES, "django_htmx"]
    assert run_script(TEMPLATE, *packages, env=environment) == "Hello you"
