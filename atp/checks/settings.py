"""The check of ATP's own settings. Other checks that read them are skipped until they are valid."""

from functools import wraps

from django.core.checks import Error, Tags, register

from ..conf.validation import problems


@register(Tags.compatibility)
def check_settings(app_configs, **kwargs):
    """Check ATP's own settings: unknown keys, wrong types, a lease that breaks G3."""
    return [Error(problem, id="atp.E001") for problem in problems()]


def with_valid_settings(check):
    """Skip a check while :func:`check_settings` reports problems."""

    @wraps(check)
    def checked(app_configs, **kwargs):
        return [] if problems() else check(app_configs, **kwargs)

    return checked
