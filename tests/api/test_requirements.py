"""What a project can do without the extra [web]: use templates, and read what is missing."""

from atp import api

from ..helpers import child_environment
from .client import run_script

SETTINGS = """
import json
import sys
import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.template import engines
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "atp"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
"""
API = """
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
TEMPLATE = """
for module in sys.argv[1:]:
    sys.modules[module] = None  # cannot be imported
django.setup()
print(json.dumps(engines["django"].from_string("Hello {{ name }}").render({"name": "you"})))
"""


def printed(script, packages):
    """Run a script in a project that has no settings but these, and none of the packages."""
    own = {k: v for k, v in child_environment().items() if k != "DJANGO_SETTINGS_MODULE"}
    return run_script(SETTINGS + script, *packages, env=own)


def test_a_missing_package_is_named_when_the_api_is_imported():
    """The app ``atp`` itself loads without the package."""
    assert printed(API, api.PACKAGES) == {
        module: f"The API of ATP needs {package}: install ATP with its extra [web]."
        for module, package in api.PACKAGES.items()
    }


def test_templates_of_a_project_need_no_package_of_the_pages():
    """Django imports the template tags of all apps for the first template."""
    assert printed(TEMPLATE, [*api.PACKAGES, "django_htmx"]) == "Hello you"
