"""--reload: the daemon starts anew when code changes (development)."""

import signal
import time

import pytest

from tests.app import tasks_daemon as types
from tests.environment import ROOT
from tests.helpers import DEADLINE, wait_for


@pytest.fixture
def own_modules(tmp_path):
    """The environment of daemons that find the modules in a folder first."""
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_reload(atpd, tmp_path, own_modules):
    """The tasks of an app change, which only this daemon has."""
    (tmp_path / "own_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'own_app']\n"
    )
    app = tmp_path / "own_app"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "tasks.py").write_text("")
    environment = own_modules | {"DJANGO_SETTINGS_MODULE": "own_settings"}
    daemon = atpd("--reload", processes=1, environment=environment).ready()
    first = daemon.workers()
    (app / "tasks.py").write_text("# changed\n")
    daemon.wait_for_fact("daemon_started", 2)
    wait_for(lambda: daemon.workers() and not set(daemon.workers()) & set(first))
    assert types.noop.enqueue().wait(DEADLINE).state == "FINISHED"
    assert daemon.stop() == 0


def test_what_cannot_be_loaded_is_waited_for(atpd, record, flag, tmp_path, own_modules):
    """A change under which manage.py does not start ends no daemon.

    G10: Ctrl-C while a daemon waits to start anew ends it, and there is no other run.
    """
    module = tmp_path / "sitecustomize.py"
    module.write_text("")
    daemon = atpd("--reload", "--grace", "3", processes=1, environment=own_modules).ready()
    module.write_text("raise SystemExit('half a thought')\n")
    told = daemon.wait_for_fact("not_reloading")
    assert "half a thought" in told["message"]
    module.write_text("# mended\n")
    daemon.wait_for_fact("daemon_started", 2)
    types.stubborn.enqueue(path=str(record), until=str(flag))
    record.wait_for("start")
    wait_for(lambda: time.time() - module.stat().st_mtime > 0.01)
    module.write_text("# changed again\n")
    daemon.wait_for_fact("reloading", 2)
    daemon.signal(signal.SIGINT)
    daemon.wait()
    assert len(daemon.facts("daemon_started")) == 2
