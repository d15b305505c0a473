"""ATP's own carriers: the language and the time zone of Django."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timezone as fixed
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings as project
from django.utils import timezone, translation

from .carrier import Carrier


class Language(Carrier):
    """Carries the active language if it differs from LANGUAGE_CODE."""

    name = "language"

    def save(self) -> Any:
        language = translation.get_language()
        return None if language == project.LANGUAGE_CODE else language

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        return translation.override(value)


class TimeZone(Carrier):
    """Carries the current time zone if it differs from TIME_ZONE.

    The value is the name of the zone, or a fixed offset in minutes.
    """

    name = "time_zone"

    def save(self) -> Any:
        zone = timezone.get_current_timezone()
        if zone == timezone.get_default_timezone():
            return None
        if isinstance(zone, fixed):
            return zone.utcoffset(None).total_seconds() / 60
        return getattr(zone, "key", None)

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        is_offset = isinstance(value, (int, float))
        zone = timezone.get_fixed_timezone(value) if is_offset else ZoneInfo(value)
        return timezone.override(zone)
