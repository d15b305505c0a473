"""The checks of the middleware, the login page and the rule that the pages of ATP need."""

from urllib.parse import urlsplit

from django.conf import settings as project
from django.core import checks
from django.core.checks import Tags, register
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, resolve, reverse
from django.utils.module_loading import import_string

from ..web import authorization
from .settings import with_valid_settings

_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@register(Tags.urls)
def check_users(app_configs, **kwargs):
    """Check that AuthenticationMiddleware gives requests the user that the pages ask for."""
    if not _are_pages_in_use() or any(map(_is_authenticating, project.MIDDLEWARE)):
        return []
    return [
        checks.Warning(
            "The pages of ATP are in use, but no AuthenticationMiddleware is in MIDDLEWARE.",
            hint="Without one a request has no user. Add SessionMiddleware and "
            f"{_AUTHENTICATION!r}.",
            id="atp.W012",
        )
    ]


def _is_authenticating(name):
    try:
        found = import_string(name)
    except ImportError:
        return False
    # Compared by name: a project need not have Django's users. A function may do anything.
    kinds = getattr(found, "__mro__", ())
    return not kinds or any(f"{k.__module__}.{k.__qualname__}" == _AUTHENTICATION for k in kinds)


def _are_pages_in_use():
    if not getattr(project, "ROOT_URLCONF", None):
        return False  # a project that only runs tasks may have none
    try:
        reverse("atp:overview")
    except NoReverseMatch:
        return False
    return True


@register(Tags.urls)
def check_login(app_configs, **kwargs):
    """Check that LOGIN_URL exists: the pages send users there who are not logged in."""
    if not _are_pages_in_use():
        return []
    if _leads_somewhere(str(project.LOGIN_URL)):
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {project.LOGIN_URL!r}, which is no page of this project.",
            hint="The pages of ATP send users there who are not logged in. Set LOGIN_URL to a page "
            "to log in; ATP has a template for one: "
            "LoginView.as_view(template_name='atp/login.html').",
            id="atp.W006",
        )
    ]


def _leads_somewhere(url):
    try:
        path = resolve_url(url)
        if path.startswith("/") and not path.startswith("//"):
            resolve(urlsplit(path).path)
    except (NoReverseMatch, Resolver404):
        return False
    return True


@register(Tags.security)
@with_valid_settings
def check_rule(app_configs, **kwargs):
    """Check that the function that ``ATP["AUTHORIZE"]`` names can be used."""
    return [checks.Error(problem, id="atp.E021") for problem in authorization.problems()]
