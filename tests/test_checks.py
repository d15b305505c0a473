"""Tests of the system checks, which report what is wrong with a project's settings.

Those of ``check --deploy`` report security problems, and each remedy works.
"""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from django.conf import settings as project
from django.core.checks import INFO, WARNING, run_checks
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection, connections
from django.test import override_settings

from atp import checks, task_type
from atp.checks import check_server
from atp.conf import settings as own
from atp.operations.registry import registry
from atp.store import get_store

from .helpers import as_nobody, run_python


@pytest.fixture(autouse=True)
def _each_type_is_reached(monkeypatch):
    """Hide from the checks that other test modules declare Types after Django has started."""
    monkeypatch.setattr(registry, "_late", set())


def test_checks_report_each_bad_setting_and_nothing_for_good_settings(db, settings):
    """G3, G13: one lease ends too soon after the kill. See tests/test_conf.py for more settings."""
    assert [each.id for each in run_checks() if (each.id or "").startswith("atp.")] == []
    for given, words in (
        ({"LEASE": 20.0, "KILL_AFTER": 19.5, "RENEW_EVERY": 1.0}, "before the lease ends"),
        ({"LOG_LEVEL": "WARNNING"}, "Did you mean 'WARNING'?"),
        ({"STORAGE": "defualt"}, "Did you mean 'default'?"),
        ({"STORE": "no.such.Store"}, "No module named"),
        ({"SCRATCH_DIR": "/no/such/folder"}, "not a directory"),
        ({"BACKOFF": 100, "BACKOFF_MAX": 10}, "longer than"),
        (None, "must be a dictionary, not NoneType"),
    ):
        settings.ATP = given
        [message] = checks.check_settings(None)
        assert message.id == "atp.E001"
        assert words in message.msg


def test_check_reports_a_type_that_no_daemon_imports(monkeypatch):
    """Tasks of such a Type would wait forever, because daemons import only ``tasks.py`` modules."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    task_type("tests.elsewhere")(lambda context: None)
    [message] = checks.check_types(None)
    assert (message.id, message.level) == ("atp.W036", WARNING)
    assert message.msg == (
        "The Type 'tests.elsewhere' is declared in tests.test_checks, which no daemon imports."
    )
    assert message.hint.endswith("Import tests.test_checks in a tasks.py.")


def told_of_queue(monkeypatch, vendor, **options):
    """Return the ids that the check reports for a queue connection of this vendor and OPTIONS."""
    connection = connections["default"]
    with monkeypatch.context() as patch:
        patch.setattr(connection, "vendor", vendor)
        patch.setitem(connection.settings_dict, "OPTIONS", options)
        return [message.id for message in checks.check_queue_database(None)]


def test_check_reports_bad_options_of_the_queue_connection(monkeypatch):
    """SQLite needs certain options, and a pool must have enough connections for a daemon."""
    good = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL;",
    }
    for change, found in (
        ({"transaction_mode": None}, ["atp.W001"]),
        ({"transaction_mode": "DEFERRED"}, ["atp.W001"]),
        ({"init_command": "PRAGMA synchronous=FULL"}, ["atp.W002"]),
        ({"timeout": 5}, ["atp.W003"]),
        ({"init_command": "pragma journal_mode = WAL"}, []),
    ):
        assert told_of_queue(monkeypatch, "sqlite", **good | change) == found
    for pool, found in (
        (True, []),
        (False, []),
        ({"max_size": 3}, []),
        ({"min_size": 2}, ["atp.W016"]),
        ({"min_size": 0, "max_size": 1}, ["atp.W016"]),
    ):
        assert told_of_queue(monkeypatch, "postgresql", pool=pool) == found


def test_check_reports_an_unknown_queue_database_and_a_router_that_avoids_it(settings):
    settings.ATP = {"DATABASE": "default"}
    settings.DATABASE_ROUTERS = ["tests.test_checks.Elsewhere"]
    assert [message.id for message in checks.check_queue_database(None)] == ["atp.W004"]
    settings.DATABASE_ROUTERS = ["atp.router.QueueRouter", "tests.test_checks.Elsewhere"]
    assert checks.check_queue_database(None) == []
    settings.ATP = {"DATABASE": "defualt"}
    [message] = checks.check_queue_database(None)
    assert message.id == "atp.E002"
    assert "Did you mean 'default'?" in message.msg


def test_check_reports_a_transactional_type_outside_the_queue_database(settings, monkeypatch):
    """G7: one transaction cannot commit in two databases."""
    for given, queue, found in (
        (True, "default", []),
        ("default", "default", []),
        (False, "other", []),
        ("other", "other", []),
        (True, "other", ["atp.E003"]),
        ("other", "default", ["atp.E003"]),
    ):
        settings.ATP = {"DATABASE": queue}
        monkeypatch.setattr(registry, "_types", {})
        task_type("tests.transactional", transactional=given)(lambda context: None)
        messages = checks.check_transactional(None)
        assert [message.id for message in messages] == found
        assert all("'tests.transactional'" in message.msg for message in messages)


class Elsewhere:
    def db_for_read(self, model, **hints):
        return "elsewhere"


def test_check_reports_missing_authentication_and_a_login_url_that_does_not_resolve(settings):
    """A project that only runs tasks may have no pages (G13)."""
    assert checks.check_users(None) == []
    with override_settings(MIDDLEWARE=[]):
        assert [message.id for message in checks.check_users(None)] == ["atp.W012"]
    here = ("login", "/login/?from=atp", "https://accounts.example/", "//accounts.example/")
    for url in (*here, "/accounts/login/", "no-such-name"):
        settings.LOGIN_URL = url
        found = checks.check_login(None)
        assert [warning.id for warning in found] == ([] if url in here else ["atp.W006"])
    settings.ROOT_URLCONF = "tests.without_pages"
    assert checks.check_login(None) == []
    del settings.ROOT_URLCONF
    assert checks.check_login(None) == checks.check_users(None) == []


def test_check_reports_types_whose_instances_are_kept_forever(settings):
    """``retention=None`` of a Type, or ``RETENTION = None``, might not be intended."""
    task_type("checks.ever", retention=None)(lambda context: None)
    try:
        [found] = checks.check_retention(None)
        assert (found.id, found.level) == ("atp.I007", INFO)
        assert "checks.ever" in found.msg
        assert "tests.echo" not in found.msg
        settings.ATP = {**settings.ATP, "RETENTION": None}
        [found] = checks.check_retention(None)
        assert "…" in found.msg
    finally:
        registry.remove("checks.ever")
    settings.ATP = {**settings.ATP, "RETENTION": 5}
    assert checks.check_retention(None) == []


def test_checks_report_folders_that_are_not_set_or_not_writable(settings, common, tmp_path):
    refused = common / "refused"
    refused.mkdir(mode=0o500)
    for folder in (tmp_path, str(tmp_path)):
        settings.ATP = {"SCRATCH_DIR": folder}
        assert checks.check_settings(None) == checks.check_scratch(None) == []
        settings.MEDIA_ROOT = str(folder)
        assert checks.check_storage(None) == []
    settings.MEDIA_ROOT = ""
    assert [message.id for message in checks.check_storage(None)] == ["atp.W005"]
    settings.ATP = {"SCRATCH_DIR": refused}
    settings.MEDIA_ROOT = refused / "media"

    def found():
        messages = [*checks.check_scratch(None), *checks.check_storage(None)]
        return "\n".join(f"{message.id} {message.msg}" for message in messages)

    # Root may write everywhere.
    told = (as_nobody(found) if os.geteuid() == 0 else found()).splitlines()
    assert [line.split()[0] for line in told] == ["atp.W010", "atp.W011"]
    assert all(f"folder {refused} cannot be written" in line for line in told)


@pytest.mark.skipif(
    connections["default"].vendor != "postgresql", reason="only PostgreSQL has a server"
)
def test_check_of_the_server_covers_only_the_given_databases(db):
    assert check_server(None) == []
    assert check_server(None, databases=["default"]) == []
    with connections["default"].cursor() as cursor:
        cursor.execute("SET LOCAL array_nulls = off")
    assert [each.id for each in check_server(None, databases=["default"])] == ["atp.E018"]


def test_project_needs_no_package_of_the_extra_web_unless_it_has_pages():
    """Django imports the template tags of every app, so `migrate` and `check` need them."""
    run_python("""
import sys
sys.modules.update(
    dict.fromkeys(["django_filters", "django_htmx", "rest_framework", "drf_spectacular"])
)
import django
from django.conf import settings
from django.core.management import call_command
settings.configure(
    SECRET_KEY="x",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "atp"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
call_command("check")
""")


def shell(hint):
    subprocess.run(["sh", "-euc", hint], check=True)


@pytest.mark.parametrize("given", [None, {}])
def test_deploy_check_reports_public_files_until_they_have_a_private_storage(
    settings, tmp_path, given
):
    """The commands in the hint also move the files that are stored already."""
    settings.MEDIA_ROOT = tmp_path / "me dia"
    settings.ATP = {}
    if given is None:
        del settings.ATP  # Django sends no signal for this deletion, so the line above sends it
    storages["default"].save("atp/uuid/a.html", ContentFile("<script>"))
    [warning] = checks.check_public_files(None)
    assert warning.id == "atp.W030"
    assert str(settings.MEDIA_ROOT) in warning.msg
    code = [line.strip() for line in warning.hint.splitlines() if line.startswith("    ")]
    given = [name for name in ("STORAGES", "ATP") if project.is_overridden(name)]
    names = {name: dict(getattr(project, name)) for name in given if hasattr(project, name)}
    exec("\n".join(code[:-1]), names)
    settings.STORAGES, settings.ATP = names["STORAGES"], names["ATP"]
    shell(code[-1])
    assert checks.check_public_files(None) == []
    assert checks.check_settings(None) == []
    storage = storages[own.STORAGE]
    with storage.open("atp/uuid/a.html") as file:
        assert file.read() == b"<script>"
    assert settings.MEDIA_ROOT not in Path(storage.path("atp/uuid/a.html")).parents
    assert not (settings.MEDIA_ROOT / "atp").exists()


def test_deploy_check_reports_a_storage_only_if_it_is_in_the_public_folder(settings, tmp_path):
    """The location of such a storage can also be a symbolic link into the public folder."""
    memory = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    settings.STORAGES = {**settings.STORAGES, "default": memory}
    assert checks.check_public_files(None) == []
    settings.MEDIA_ROOT = tmp_path / "media"
    (tmp_path / "media" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "media" / "inner")
    backend = "django.core.files.storage.FileSystemStorage"
    own_one = {"BACKEND": backend, "OPTIONS": {"location": str(tmp_path / "link")}}
    settings.STORAGES = {**settings.STORAGES, "atp": own_one}
    settings.ATP = {"STORAGE": "atp"}
    assert [each.id for each in checks.check_public_files(None)] == ["atp.W030"]


def test_deploy_check_reports_allow_pickle_and_running_as_root(settings):
    settings.ATP = {"ALLOW_PICKLE": True}
    [warning] = checks.check_pickle(None)
    assert (warning.id, "Leave ALLOW_PICKLE out" in warning.hint) == ("atp.W031", True)
    # This check runs only with --deploy.
    assert not [each for each in run_checks() if each.id == "atp.W031"]
    assert "atp.W031" in [each.id for each in run_checks(include_deployment_checks=True)]
    settings.ATP = {}
    assert checks.check_pickle(None) == []
    if os.geteuid() == 0:
        assert [each.id for each in checks.check_user(None)] == ["atp.W033"]
        assert as_nobody(lambda: str(checks.check_user(None))) == "[]"


def test_deploy_check_reports_a_webhook_over_http_until_it_uses_https(settings):
    secret = f"whsec_{'A' * 40}"
    target = {"url": "http://host/x", "secret": secret, "allow_http": True}
    settings.ATP = {"WEBHOOKS": {"audit": target}}
    [warning] = checks.check_webhooks(None)
    assert (warning.id, "'audit'" in warning.msg) == ("atp.W032", True)
    assert secret not in str(warning)
    settings.ATP = {"WEBHOOKS": {"audit": {"url": "https://host/x", "secret": secret}}}
    assert checks.check_settings(None) == checks.check_webhooks(None) == []


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has a database file")
def test_hint_of_the_deploy_check_stops_others_from_opening_the_database_file(
    tmp_path, monkeypatch
):
    database = tmp_path / "my db.sqlite3"
    monkeypatch.setattr(type(get_store()), "lock_folder", Path(f"{database}-atpd"))
    for name in (database, f"{database}-wal", f"{database}-shm"):
        Path(name).touch()
        os.chmod(name, 0o664)
    [warning] = checks.check_database_file(None)
    assert (warning.id, str(database) in warning.msg) == ("atp.W034", True)
    shell(warning.hint)
    assert checks.check_database_file(None) == []
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o660}


def test_deploy_check_reports_a_scratch_folder_where_everybody_can_replace_files(
    settings, tmp_path
):
    folder = tmp_path / "scr atch"
    folder.mkdir()
    folder.chmod(0o777)
    settings.ATP = {"SCRATCH_DIR": folder}
    [warning] = checks.check_scratch_owner(None)
    assert warning.id == "atp.W035"
    shell(warning.hint)
    assert checks.check_scratch_owner(None) == []
