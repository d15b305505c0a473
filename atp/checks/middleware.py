"""What the settings name that goes around attempts."""

from django.core.checks import Error, Tags, register

from ..middleware.loading import problems
from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_middleware(app_configs, **kwargs):
    """Check that ``ATP["MIDDLEWARE"]`` and ``ATP["CARRIERS"]`` name what can be used."""
    return [Error(problem, id="atp.E020") for problem in problems()]
