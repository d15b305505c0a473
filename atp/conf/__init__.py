"""The settings of ATP: the values of ``settings.ATP``, and the defaults.

A project writes only what it wants different::

    ATP = {"LEASE": 60, "RETENTION": timedelta(days=30)}

Times are in seconds, or timedeltas where the annotation says so. A value is
read when it is first used, and again after Django's ``setting_changed``, which
tests that override settings send.
"""

from typing import Any, cast

from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .defaults import Defaults
from .kinds import kind_problem


class InvalidSetting(ImproperlyConfigured):
    """A value in ``settings.ATP`` is of the wrong kind."""


class Settings:
    """The project's value of each key, or its default. Raises InvalidSetting."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(Defaults, name)
        given = getattr(project, "ATP", {})
        # The check reports settings that are no dictionary.
        if isinstance(given, dict) and name in given:
            value = given[name]
            problem = kind_problem(name, value)
            if problem:
                raise InvalidSetting(problem)
        # From now on Python finds the value without this method: most are used all the time.
        setattr(self, name, value)
        return value


# It has the keys of the defaults, and their types.
settings = cast(Defaults, Settings())


def _read_again(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        vars(settings).clear()


setting_changed.connect(_read_again)
