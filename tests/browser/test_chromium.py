"""Tests of :mod:`tests.browser.chromium`: which browser is taken, and how one comes to be there."""

import os
import shutil

import pytest

from . import chromium


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH of the test's own; ``programs(name, script)`` puts a program there."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.delenv("ATP_TEST_BROWSER", raising=False)

    def add(name, script=""):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    for name in ("env", "chmod", "touch"):
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    return add


@pytest.fixture
def as_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def as_somebody(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def installer(folder):
    """What apt-get does here: it notes how it was called, and may bring a browser."""
    return (
        f'echo "$DEBIAN_FRONTEND $*" >> {folder}/calls\n'
        f'case "$*" in *install*) touch {folder}/chromium; chmod +x {folder}/chromium;; esac'
    )


def test_the_first_name_on_the_path_is_taken(programs):
    programs("google-chrome")
    assert chromium.find().name == "google-chrome"
    programs("chromium")
    assert chromium.find().name == "chromium"


def test_a_browser_that_is_named_goes_first(programs, monkeypatch):
    programs("chromium")
    named = programs("my-browser")
    monkeypatch.setenv("CHROMIUM", str(named))
    assert chromium.find() == chromium.ensure() == named


def test_a_browser_that_is_named_and_missing_is_not_replaced(programs, monkeypatch, as_root):
    programs("chromium")
    programs("apt-get", "exit 1")
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(chromium.NoBrowser, match="CHROMIUM=/no/such/browser: there is no such"):
        chromium.ensure()


def test_none_is_installed_where_there_is_one(programs, as_root):
    programs("apt-get", "exit 1")
    there = programs("chromium-browser")
    assert chromium.ensure() == there


def test_root_installs_one(programs, as_root, tmp_path, capsys):
    programs("apt-get", installer(tmp_path))
    assert chromium.ensure() == tmp_path / "chromium"
    update, install = (tmp_path / "calls").read_text().splitlines()
    assert update.startswith("noninteractive")
    assert update.endswith("update")
    assert install.startswith("noninteractive")
    assert install.endswith("install --yes --no-install-recommends chromium fonts-dejavu-core")
    assert "apt-get" in capsys.readouterr().out


def test_somebody_else_installs_one_with_sudo(programs, as_somebody, tmp_path):
    programs("apt-get", installer(tmp_path))
    programs("sudo", '[ "$1" = -n ] && shift && exec "$@"')
    assert chromium.ensure() == tmp_path / "chromium"


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        ({}, "no apt-get to install one"),
        ({"apt-get": "exit 0"}, "takes root or sudo"),
        ({"apt-get": "exit 0", "sudo": "echo a password is required; exit 1"}, "(?s)a password.*"),
        ({"apt-get": "exit 0", "sudo": "exit 0"}, "none of chromium"),
    ],
)
def test_what_cannot_be_installed_is_told_with_what_to_do(programs, as_somebody, there, problem):
    for name, script in there.items():
        programs(name, script)
    with pytest.raises(chromium.NoBrowser, match=f"{problem}.*Install chromium and .*none skips"):
        chromium.ensure()


def test_going_without_is_said(programs, monkeypatch):
    monkeypatch.setenv("ATP_TEST_BROWSER", "none")
    assert not chromium.is_wanted()
    assert "no test runs in a browser" in chromium.announced()
    monkeypatch.setenv("ATP_TEST_BROWSER", "no")
    with pytest.raises(chromium.NoBrowser, match="must be none, or not set"):
        chromium.is_wanted()


def test_the_command_ends_with_a_status(programs, capsys):
    assert chromium.main() == 1
    assert "no apt-get" in capsys.readouterr().err
    there = programs("chromium")
    assert chromium.main() == 0
    assert str(there) in capsys.readouterr().out
