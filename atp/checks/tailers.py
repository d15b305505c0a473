"""The check of tailers: whether their sources can be read."""

from django.core import checks
from django.core.checks import Tags, register

from ..tailers.tailer import declared
from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_tailers(app_configs, **kwargs):
    """Check that the source of each tailer is there, with the library that it needs."""
    return [
        checks.Warning(f"Tailer {tailer.identifier!r}: {problem}.", id="atp.W019")
        for tailer in declared
        for problem in tailer.source.problems()
    ]
