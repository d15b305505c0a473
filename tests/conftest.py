"""Fixtures of all tests."""

import shutil

import pytest
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis

# How long an example takes says nothing on a loaded machine.
hypothesis.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.load_profile("tests")


@pytest.fixture
def media():
    """Django's media folder, emptied afterwards."""
    settings.MEDIA_ROOT.mkdir(exist_ok=True)
    yield settings.MEDIA_ROOT
    shutil.rmtree(settings.MEDIA_ROOT, ignore_errors=True)


def pytest_report_header():
    from django.db import connection

    from . import environment

    return f"database: {environment.kind()} ({connection.Database.__name__})"
