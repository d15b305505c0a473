"""The check of tailers: whether their sources can be read."""

from __future__ import annotations

from collections.abc import Iterator

from django.core import checks
from django.core.checks import Tags, register

from ..conf import settings
from ..sources import Table
from ..tailers.tailer import declared
from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_tailers(app_configs, **kwargs):
    """Check that the source of each tailer is there, with the library that it needs (G18)."""
    return [*_misplaced(), *_problems()]


def _misplaced() -> Iterator[checks.CheckMessage]:
    for tailer in declared:
        why = tailer.source.misplaced() if isinstance(tailer.source, Table) else ""
        if why:
            yield checks.Error(
                f"Tailer {tailer.identifier!r}: {why}.",
                hint="A row is removed in the transaction that enqueues its Instances. Have your "
                f"router put the model into {settings.DATABASE!r}, or read the rows with a source "
                "of your own.",
                id="atp.E022",
            )


def _problems() -> list[checks.CheckMessage]:
    return [
        checks.Warning(f"Tailer {tailer.identifier!r}: {problem}.", id="atp.W019")
        for tailer in declared
        for problem in tailer.source.problems()
    ]
