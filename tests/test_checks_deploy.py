"""Tests that ``check --deploy`` reports security problems, and that each remedy works."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from django.conf import settings as project
from django.core.checks import run_checks
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection

from atp import checks
from atp.conf import settings as own
from atp.store import get_store

from .helpers import as_nobody


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
    names = {
        name: dict(getattr(project, name))
        for name in ("STORAGES", "ATP")
        if hasattr(project, name) and project.is_overridden(name)
    }
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
