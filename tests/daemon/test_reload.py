"""--reload: the daemon starts anew when code changes (development)."""

from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, wait_for

from . import harness


def have_on_path(monkeypatch, folder, **more):
    """Have daemons find the modules in a folder first."""
    own = child_environment(**more)
    own["PYTHONPATH"] = f"{folder}:{own['PYTHONPATH']}"
    monkeypatch.setattr(harness, "child_environment", lambda **more: own | more)


def test_reload(atpd, tmp_path, monkeypatch):
    """The tasks of an app change, which only this daemon has."""
    (tmp_path / "own_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'own_app']\n"
    )
    app = tmp_path / "own_app"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "tasks.py").write_text("")
    have_on_path(monkeypatch, tmp_path, DJANGO_SETTINGS_MODULE="own_settings")
    daemon = atpd("--reload", processes=1).ready()
    first = daemon.workers()
    (app / "tasks.py").write_text("# changed\n")
    daemon.wait_for_fact("daemon_started", 2)
    wait_for(lambda: daemon.workers() and not set(daemon.workers()) & set(first))
    assert types.noop.enqueue().wait(DEADLINE).state == "FINISHED"
    assert daemon.stop() == 0


def test_what_cannot_be_loaded_is_waited_for(atpd, tmp_path, monkeypatch):
    """A change under which manage.py does not start ends no daemon."""
    module = tmp_path / "sitecustomize.py"
    module.write_text("")
    have_on_path(monkeypatch, tmp_path)
    daemon = atpd("--reload", processes=1).ready()
    module.write_text("raise SystemExit('half a thought')\n")
    told = daemon.wait_for_fact("not_reloading")
    assert "half a thought" in told["message"]
    module.write_text("# mended\n")
    daemon.wait_for_fact("daemon_started", 2)
    assert daemon.stop() == 0
