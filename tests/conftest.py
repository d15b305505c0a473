"""Fixtures of all tests."""

import shutil
from dataclasses import replace

import pytest
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis

from atp.context import Context
from atp.store import get_store
from tests.samples import claimed

from .store.world import World

# How long an example takes says nothing on a loaded machine.
hypothesis.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.load_profile("tests")


@pytest.fixture
def media():
    """Django's media folder, emptied afterwards."""
    settings.MEDIA_ROOT.mkdir(exist_ok=True)
    yield settings.MEDIA_ROOT
    shutil.rmtree(settings.MEDIA_ROOT, ignore_errors=True)


@pytest.fixture
def world(db, tmp_path):
    """The queue of the project's store; whatever the test did, its promises hold in the end."""
    with World(get_store(), tmp_path) as world:
        yield world


@pytest.fixture
def host(world):
    """A daemon that serves the Types of the tests' app, worked by hand."""
    return world.host("tests.echo", "tests.add", "tests.keyword")


@pytest.fixture
def said():
    """What the handler has reported, as a list of tuples."""
    return []


@pytest.fixture
def context(said, tmp_path):
    task = replace(
        claimed(5, "tests.echo"), attempt=3, identifier="a", collection="esa", priority=7
    )
    context = Context(
        task,
        report=lambda *report: said.append(report),
        interruption=lambda: context.reason,
        scratch_root=tmp_path,
    )
    context.reason = None
    return context


def pytest_report_header():
    from django.db import connection

    from . import environment

    return f"database: {environment.kind()} ({connection.Database.__name__})"
