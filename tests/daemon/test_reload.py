"""--reload: the daemon starts anew when code changes (development)."""

import os
from pathlib import Path

from atp.daemon.reload import Watcher
from tests.app import tasks_daemon as types
from tests.helpers import wait_for


def test_reload(atpd):
    daemon = atpd("--reload", processes=1).ready()
    first = daemon.workers()
    os.utime(types.__file__)
    daemon.wait_for_fact("daemon_started", 2)
    wait_for(lambda: daemon.workers() and not set(daemon.workers()) & set(first))
    assert types.noop.enqueue().wait(20).state == "FINISHED"
    assert daemon.stop() == 0


def test_what_does_not_compile_is_waited_for(tmp_path, monkeypatch):
    module = tmp_path / "changing.py"
    module.write_text("x = 1")
    monkeypatch.setattr("atp.daemon.reload.iter_all_python_module_files", lambda: [Path(module)])
    watcher = Watcher()
    assert watcher.changed() is None
    module.write_text("x = (")
    os.utime(module, ns=(1, 1))
    watcher._timers.now("look")
    assert watcher.changed() is None
    module.write_text("x = 2")
    os.utime(module, ns=(2, 2))
    watcher._timers.now("look")
    assert watcher.changed() == module
