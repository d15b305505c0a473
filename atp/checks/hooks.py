"""The check of hooks that are declared for patterns of Types."""

from django.core import checks
from django.core.checks import register

from ..verbs.hooking import unmatched
from .settings import with_valid_settings


# Django runs a check before each command. The tag is one that ``manage.py atp`` leaves out.
@register("atp")
@with_valid_settings
def check_hooks(app_configs, **kwargs):
    """Check that each pattern of ``on_finished`` and ``on_failed`` matches a Type."""
    return [checks.Warning(problem, id="atp.W014") for problem in unmatched()]
