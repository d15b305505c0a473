"""Tests of :mod:`tests.browser.chromium`: which browser is taken, and what is told without one."""

import pytest

from . import chromium


def test_which_browser_is_taken(tmp_path, monkeypatch):
    """One that is named; else the first name on the PATH; one that is missing is installed."""

    def program(name, script=""):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CHROMIUM", "ATP_TEST_BROWSER"):
        monkeypatch.delenv(name, raising=False)
    failing = "echo no network; exit 1"
    for name in ("apt-get", "sudo", "env"):
        program(name, failing)
    with pytest.raises(chromium.NoBrowser, match=r"(?s)no network.*Install chromium.*skips"):
        chromium.ensure()
    program("google-chrome")
    assert chromium.find().name == "google-chrome"
    program("chromium")
    assert chromium.ensure().name == "chromium"
    named = program("my-browser")
    monkeypatch.setenv("CHROMIUM", str(named))
    assert chromium.ensure() == named
    # One that is named and missing is not replaced.
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(chromium.NoBrowser, match="CHROMIUM=/no/such/browser: there is no such"):
        chromium.ensure()
    monkeypatch.setenv("ATP_TEST_BROWSER", "none")
    assert "no test runs in a browser" in chromium.announced()
    monkeypatch.setenv("ATP_TEST_BROWSER", "no")
    with pytest.raises(chromium.NoBrowser, match="must be none, or not set"):
        chromium.is_wanted()
