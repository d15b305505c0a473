"""The check of the middleware and the carriers that the settings name."""

from django.core.checks import Error, Tags, register

from ..middleware.loading import problems
from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_middleware(app_configs, **kwargs):
    """Check that all that ``ATP["MIDDLEWARE"]`` and ``ATP["CARRIERS"]`` name can be used."""
    return [Error(problem, id="atp.E020") for problem in problems()]
