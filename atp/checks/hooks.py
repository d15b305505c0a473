"""The check of hooks that are declared for patterns of Types."""

from django.core import checks
from django.core.checks import Tags, register

from ..verbs.hooking import unmatched
from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_hooks(app_configs, **kwargs):
    """Check that each pattern of ``on_finished`` and ``on_failed`` matches a Type."""
    return [checks.Warning(problem, id="atp.W014") for problem in unmatched()]
