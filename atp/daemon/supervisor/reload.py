"""Restarting the daemon when code changes, for development."""

import os
import subprocess
import sys

from django.utils.autoreload import iter_all_python_module_files

from .. import journal
from ..system.timers import Timers

LOOK_EVERY = 1.0


def command_line(command):
    """Return this process's arguments up to ``atpd``, with ``command`` in its place."""
    before = sys.orig_argv[1 : sys.orig_argv.index("atpd")]
    return [*before, command]


class Watcher:
    """The watcher of the files of all loaded modules, which it looks at once a second."""

    def __init__(self):
        self._timers = Timers()
        self._times = {}
        self._look()

    def _look(self):
        """Return the files that have changed since the last look."""
        changed = []
        for path in iter_all_python_module_files():
            try:
                time = path.stat().st_mtime_ns
            except OSError:
                continue
            if self._times.setdefault(path, time) != time:
                changed.append(path)
            self._times[path] = time
        return changed

    def changed(self):
        """Return a file that has changed; None if none has, or if the project does not load."""
        if not self._timers.due("look", LOOK_EVERY):
            return None
        changed = self._look()
        if not changed:
            return None
        error = self._problem()
        if error:
            journal.not_reloading(file=changed[0], error=error)
            return None
        return changed[0]

    @staticmethod
    def _problem():
        """Return the reason why the project does not load now, or None if it loads."""
        checked = subprocess.run(
            [sys.executable, *command_line("check")], capture_output=True, text=True, check=False
        )
        lines = checked.stderr.strip().splitlines()
        return (lines or ["it does not load"])[-1] if checked.returncode else None

    @staticmethod
    def start_anew():
        """Replace this process by a new run of the same command."""
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
