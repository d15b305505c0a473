"""Starting anew when code changes, for development."""

import os
import sys

from django.utils.autoreload import iter_all_python_module_files

from . import journal
from .timers import Timers

LOOK_EVERY = 1.0


class Watcher:
    """Looks at the files of all loaded modules once a second."""

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
        """Return a file that has changed and compiles, or None."""
        if not self._timers.due("look", LOOK_EVERY):
            return None
        for path in self._look():
            try:
                compile(path.read_bytes(), path, "exec")
            except (SyntaxError, ValueError, OSError) as error:
                journal.not_reloading(file=path, error=error)
            else:
                return path
        return None

    @staticmethod
    def start_anew():
        """Replace this process by a new run of the same command."""
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
