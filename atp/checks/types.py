"""The check of the modules that declare Types."""

import contextlib

from django.conf import settings as project
from django.core import checks
from django.core.checks import Tags, register
from django.urls import get_resolver

from ..verbs.registry import IMPORTED, registry
from .settings import with_valid_settings


# With the checks of URLs, which import the views: those enqueue what daemons may not import.
@register(Tags.urls)
@with_valid_settings
def check_types(app_configs, **kwargs):
    """Check that daemons import the modules of all Types that views import."""
    if getattr(project, "ROOT_URLCONF", None):
        # Django's own check reports a URLconf that cannot be imported.
        with contextlib.suppress(Exception):
            get_resolver().url_patterns  # noqa: B018 (imports the views)
    return [
        checks.Warning(
            f"The Type {task_type.identifier!r} is declared in {task_type.handler.__module__}, "
            "which no daemon imports.",
            hint=f"{IMPORTED}. Import {task_type.handler.__module__} in a tasks.py.",
            id="atp.W036",
        )
        for task_type in registry.unreached()
    ]
