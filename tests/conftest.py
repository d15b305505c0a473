"""Fixtures of all tests."""

import math
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from django.core.servers.basehttp import WSGIRequestHandler
from django.db import connection
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis

from atp import queue
from atp.authoring.context import Context
from atp.operations import admission
from atp.operations.registry import registry
from atp.pages import base
from atp.store import get_store
from atp.store.postgresql import sessions

from . import clock, emptying, environment, left_behind, results, selection
from .daemon.harness import Atpd, Record
from .daemon.warm import Warm
from .populated import populate
from .samples import claimed
from .store.world import World

# A live server would hold back the rest of a small answer until the client has
# acknowledged its beginning, some 40 ms.
WSGIRequestHandler.disable_nagle_algorithm = True

# Seconds for a test that takes long.
LONGEST = 1800

# What the run says of the tests that it left out.
LEFT = pytest.StashKey[list[str]]()

# Once a minute a connection throws its plans away, by a statement more: what is counted
# must not depend on the minute.
sessions.KEEP = math.inf
# Each request sees what the test has just done.
base.KEPT_FOR = -1.0

# How long an example takes says nothing on a loaded machine.
hypothesis.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.register_profile("short", hypothesis.get_profile("tests"), max_examples=20)
hypothesis.load_profile("tests")


emptying.install()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """Make the database, and remember it as it is: each test that commits finds it so."""
    with django_db_blocker.unblock():
        emptying.remember()


@pytest.fixture(autouse=True)
def _forgetting():
    """What waited in the test before does not wait any more."""
    admission.forget_counts()


@pytest.fixture
def media():
    """Django's media folder, empty in the beginning, whatever others have left, and afterwards."""
    shutil.rmtree(settings.MEDIA_ROOT, ignore_errors=True)
    settings.MEDIA_ROOT.mkdir()
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
def full(world, media):
    """The queue with something of everything in it."""
    return populate(world)


@pytest.fixture
def own_types(monkeypatch):
    """The Types that a test declares are declared for this test alone."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))


@pytest.fixture
def limited(monkeypatch):
    """The Type tests.echo, as if the code declared limits of it."""
    declared = replace(registry.get("tests.echo"), max_running=3, rate="100/m")
    monkeypatch.setitem(registry._types, "tests.echo", declared)
    return declared


@pytest.fixture
def said():
    """What the handler has reported, as a list of tuples."""
    return []


@pytest.fixture
def context(said, tmp_path):
    task = claimed(5, "tests.echo", number=3, identifier="a", collection="esa", priority=7)
    context = Context(
        task,
        report=lambda *report: said.append(report),
        interruption=lambda: context.reason,
        scratch_root=tmp_path,
    )
    context.reason = None
    return context


@pytest.fixture(scope="session")
def warm():
    """The process of which daemons are copies."""
    process = Warm()
    yield process
    process.close()


@pytest.fixture
def atpd(tmp_path, transactional_db, warm):
    """Start daemons: ``atpd("--drain", processes=1)``; whatever is left is ended afterwards."""
    queue.register_all()
    before = left_behind.others()
    started = []

    def start(*args, **options):
        daemon = Atpd(tmp_path, *args, **{"warm": warm, **options})
        started.append(daemon)
        return daemon

    yield start
    for daemon in started:
        daemon.destroy()
    left_behind.nothing_since(before)


@pytest.fixture
def record(tmp_path):
    """A record that handlers write to."""
    return Record(tmp_path / "record.jsonl")


@pytest.fixture
def flag(tmp_path):
    """A file that handlers wait for; ``flag.touch()`` lets them go on."""
    return tmp_path / "flag"


@pytest.fixture
def common():
    """A folder that everybody can reach and write to, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="atp-common-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def pytest_addoption(parser):
    selection.add_options(parser)
    results.add_options(parser)


def pytest_configure(config):
    results.configure(config)
    clock.configure(config)
    if config.option.quick:
        config.pluginmanager.register(selection.NoProcesses())
    if config.option.short:
        hypothesis.load_profile("short")
    if config.option.share:
        config.pluginmanager.register(selection.Sharing(config.option.share))


def pytest_collection_modifyitems(config, items):
    config.stash[LEFT] = selection.select(config, items)
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(LONGEST), append=False)
    results.select(config, items)


def pytest_report_collectionfinish(config):
    return config.stash.get(LEFT, [])


def pytest_report_header():
    return f"database: {environment.kind()} ({connection.Database.__name__})"
