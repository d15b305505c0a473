"""--reload: the daemon starts anew when code changes (development)."""

import pytest

from tests.app import tasks_daemon as types
from tests.helpers import child_environment, wait_for

from . import harness


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that this test's daemons load, and no other's."""
    path = tmp_path / "sitecustomize.py"
    path.write_text("")
    own = child_environment()
    own["PYTHONPATH"] = f"{tmp_path}:{own['PYTHONPATH']}"
    monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)
    return path


def test_reload(atpd, module):
    daemon = atpd("--reload", processes=1).ready()
    first = daemon.workers()
    module.write_text("# changed\n")
    daemon.wait_for_fact("daemon_started", 2)
    wait_for(lambda: daemon.workers() and not set(daemon.workers()) & set(first))
    assert types.noop.enqueue().wait(20).state == "FINISHED"
    assert daemon.stop() == 0


def test_what_cannot_be_loaded_is_waited_for(atpd, module):
    """A change under which manage.py does not start ends no daemon."""
    daemon = atpd("--reload", processes=1).ready()
    module.write_text("raise SystemExit('half a thought')\n")
    told = daemon.wait_for_fact("not_reloading")
    assert "half a thought" in told["message"]
    module.write_text("# mended\n")
    daemon.wait_for_fact("daemon_started", 2)
    assert daemon.stop() == 0
