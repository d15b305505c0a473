"""Fixtures that declare a Type anew, as the next release would."""

import pytest

from atp import task_type
from atp.operations.registry import registry
from atp.schedules import declaring

from ..api.conftest import user_with  # noqa: F401 (a fixture)

SHADE = "deploys.shade"


@pytest.fixture
def release(monkeypatch):
    """A function that declares SHADE with another handler, as the next release does."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(registry, "_former", dict(registry._former))
    monkeypatch.setattr(
        declaring.declared_schedules, "_specs", dict(declaring.declared_schedules._specs)
    )

    def declare(handler=None, *, identifier=SHADE, **parameters):
        registry.remove(SHADE)
        registry.remove(identifier)
        return None if handler is None else task_type(identifier, **parameters)(handler)

    yield declare
    registry._kept.clear()


@pytest.fixture
def shade(release):
    """The Type SHADE as the current release declares it."""

    def handler(context, *, path, azimuth=315.0):
        return path

    return release(handler)
