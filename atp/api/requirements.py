"""What has to be installed for the API, told before an import fails without a word of help."""

from importlib import import_module

_PACKAGES = {
    "rest_framework": "djangorestframework",
    "drf_spectacular": "drf-spectacular",
    "django_filters": "django-filter",
}


def problem():
    """Return a sentence about what is missing, or None."""
    missing = [name for module, name in _PACKAGES.items() if not _is_installed(module)]
    if not missing:
        return None
    return f"The API of ATP needs {' and '.join(missing)}: pip install 'django-atp[web]'."


def _is_installed(module):
    try:
        import_module(module)
    except ImportError:
        return False
    return True
