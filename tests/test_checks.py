"""System checks say what is wrong with a project's settings."""

import copy

import pytest
from django.core.checks import run_checks
from django.db import connections

from atp import checks, task_type
from atp.registry import registry


def ids():
    return [message.id for message in run_checks() if (message.id or "").startswith("atp.")]


def test_these_settings_are_good(db):
    assert ids() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"RETENSION": 5}, "Did you mean 'RETENTION'?"),
        ({"retention": 5}, "Did you mean 'RETENTION'?"),
        ({"MAX_RESTARTS": "three"}, "must be int"),
        ({"LEASE": True}, "must be float"),
        ({"LEASE": -1.0}, "0 or more"),
        ({"LEASE": 20.0, "KILL_AFTER": 19.5, "RENEW_EVERY": 1.0}, "before the lease ends"),
        ({"KILL_AFTER": 9.0}, "kill all workers"),
        ({"LOG_LEVEL": "WARNNING"}, "Did you mean 'WARNING'?"),
        ({"STORAGE": "defualt"}, "Did you mean 'default'?"),
        ({"STORE": "no.such.Store"}, "No module named"),
        ({"SCRATCH_DIR": "/no/such/folder"}, "not a directory"),
        ({"BACKOFF": 100, "BACKOFF_MAX": 10}, "longer than"),
        (["LEASE"], "must be a dictionary"),
    ],
)
def test_bad_settings(settings, given, words):
    """An unknown or mistyped key, and a lease that breaks G3 (G13)."""
    settings.ATP = given
    [message] = checks.check_settings(None)
    assert message.id == "atp.E001"
    assert words in message.msg


def test_unknown_database(settings):
    settings.ATP = {"DATABASE": "defualt"}
    [message] = checks.check_queue_database(None)
    assert message.id == "atp.E002"
    assert "Did you mean 'default'?" in message.msg


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"transaction_mode": None}, ["atp.W001"]),
        ({"transaction_mode": "DEFERRED"}, ["atp.W001"]),
        ({"init_command": "PRAGMA synchronous=FULL"}, ["atp.W002"]),
        ({"timeout": 5}, ["atp.W003"]),
        ({"init_command": "pragma journal_mode = WAL"}, []),
    ],
)
def test_sqlite_options(change, found):
    """What SQLite lacks to be a queue is said."""
    connection = copy.copy(connections["default"])
    options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL;",
    }
    connection.settings_dict = {"OPTIONS": options | change}
    assert [message.id for message in checks._check_sqlite(connection)] == found


def test_router(settings):
    settings.ATP = {"DATABASE": "default"}
    settings.DATABASE_ROUTERS = ["tests.test_checks.Elsewhere"]
    assert [message.id for message in checks.check_queue_database(None)] == ["atp.W004"]
    settings.DATABASE_ROUTERS = ["atp.router.QueueRouter", "tests.test_checks.Elsewhere"]
    assert checks.check_queue_database(None) == []


@pytest.mark.parametrize(
    ("given", "queue", "found"),
    [
        (True, "default", []),
        ("default", "default", []),
        (False, "other", []),
        ("other", "other", []),
        (True, "other", ["atp.E003"]),
        ("other", "default", ["atp.E003"]),
    ],
)
def test_transactional_types_are_where_the_queue_is(settings, monkeypatch, given, queue, found):
    """G7: two databases have no commit in common."""
    settings.ATP = {"DATABASE": queue}
    monkeypatch.setattr(registry, "_types", {})

    @task_type("tests.transactional", transactional=given)
    def handler(context):
        pass

    messages = checks.check_transactional(None)
    assert [message.id for message in messages] == found
    assert all("'tests.transactional'" in message.msg for message in messages)


class Elsewhere:
    def db_for_read(self, model, **hints):
        return "elsewhere"


@pytest.mark.parametrize(("root", "found"), [("", ["atp.W005"]), ("/somewhere", [])])
def test_files_need_a_place(settings, root, found):
    settings.MEDIA_ROOT = root
    assert [message.id for message in checks.check_storage(None)] == found


@pytest.mark.parametrize(
    ("url", "is_there"),
    [
        ("login", True),
        ("/login/", True),
        ("/login/?from=atp", True),
        ("https://accounts.example/", True),
        ("//accounts.example/", True),
        ("/accounts/login/", False),
        ("no-such-name", False),
    ],
)
def test_a_login_that_is_nowhere(settings, url, is_there):
    settings.LOGIN_URL = url
    found = checks.check_login(None)
    assert [warning.id for warning in found] == ([] if is_there else ["atp.W006"])


def test_a_project_without_the_pages_needs_no_login(settings):
    settings.ROOT_URLCONF = "tests.without_pages"
    settings.LOGIN_URL = "/nowhere/"
    assert checks.check_login(None) == []
