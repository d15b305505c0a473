"""The REST API. A project includes it with ``path("atp/api/", include("atp.api.urls"))``.

Each view parses the request, calls one operation, and renders the operation's outcome.
"""

from importlib import import_module

INSTALL = "install ATP with its extra [web]"
PACKAGES = {
    "rest_framework": "djangorestframework",
    "drf_spectacular": "drf-spectacular",
    "django_filters": "django-filter",
}


def missing() -> str | None:
    """Return a sentence that names the API's missing packages, or None if all are installed."""
    names = [name for module, name in PACKAGES.items() if not _is_installed(module)]
    return f"The API of ATP needs {' and '.join(names)}: {INSTALL}." if names else None


def _is_installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
