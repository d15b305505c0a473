"""Runs a real atpd on a test's database. The daemon sees only committed rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from ..conf import settings
from ..daemon import descendants
from ..daemon.options import hostname
from ..exceptions import ATPError
from ..models import Daemon, Instance
from ..operations.instances import get
from ..states import TERMINAL
from .attempt import NotPossible
from .starting import DATABASES, MODULES, UNMIGRATED

# The longest wait for a daemon to start or stop, in seconds. It suffices on a loaded machine.
PATIENCE = 60.0
POLL_INTERVAL = 0.02


class DaemonFailed(ATPError):
    """A test's daemon did not start, or ended unexpectedly. The message contains its log."""


class DaemonProcess:
    """One atpd process with its workers. ``start()`` also restarts it after it has ended."""

    def __init__(self, *args: str, processes: int = 2, modules: tuple[str, ...] = ()) -> None:
        self._args = ("-p", str(processes), *args)
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None

    @property
    def pid(self) -> int:
        """The process id of the supervisor. Raises NotPossible before ``start()``."""
        if self._process is None:
            raise NotPossible("The daemon has not been started.")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the daemon has written to standard output and standard error so far."""
        if self._log is None:
            return ""
        self._log.seek(0)
        return str(self._log.read().decode("utf-8", "replace"))

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the daemon, and wait until it has joined the queue.

        Raises NotPossible if the daemon could not see the test's rows, and DaemonFailed or
        TimeoutError if the daemon does not join.
        """
        if self.is_alive:
            return
        _check_database_is_shared()
        self._close()
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "atp.testing.starting", *self._args],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=_make_environment(self._modules),
        )
        rows = Daemon.objects.using(settings.DATABASE).filter(host=hostname(), pid=self.pid)
        self._wait(rows.exists, PATIENCE, "has not joined the queue")

    def wait_for(self, instance: Instance | str, timeout: float = PATIENCE) -> Instance:
        """Wait until an Instance has ended, and return it with its final fields.

        ``timeout`` is in seconds. Raises TimeoutError when the timeout expires, and DaemonFailed if
        the daemon ends before the Instance does.
        """
        row = instance if isinstance(instance, Instance) else get(instance)

        def has_ended() -> bool:
            row._refresh()
            return row.state in TERMINAL

        self._wait(has_ended, timeout, f"has not finished Instance {row.uuid}")
        return row

    def kill(self) -> None:
        """Kill all processes of the daemon at once, as if its host had failed.

        Other daemons rescue its Tasks when its lease has expired (``ATP["LEASE"]``). On SQLite they
        do so at once.
        """
        self._kill_all(signal.SIGKILL)

    def stop(self) -> int:
        """Shut the daemon down gracefully, and return its exit status."""
        process = self._process
        if process is None or process.poll() is not None:
            return 0 if process is None else int(process.returncode)
        process.terminate()
        return self._wait_for_exit(process)

    def destroy(self) -> None:
        """Kill the daemon if it is still running, and close its log."""
        if self.is_alive:
            self._kill_all(signal.SIGKILL)
        self._close()

    def _kill_all(self, number: int) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        pids = {process.pid, *_find_descendants(process.pid)}
        # Kill the supervisor first, because it starts workers. The kernel reaps the others.
        for pid in (process.pid, *sorted(pids - {process.pid})):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        self._wait_for_exit(process)
        deadline = time.monotonic() + PATIENCE
        while any(_is_running(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)

    def _wait_for_exit(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise DaemonFailed(
                f"atpd has not stopped within {PATIENCE:.0f} s. Its log:\n{self.log}"
            ) from None

    def _wait(self, condition: Callable[[], object], timeout: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if not self.is_alive and not condition():
                raise DaemonFailed(f"atpd {otherwise}, and it has exited. Its log:\n{self.log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"atpd {otherwise} within {timeout:g} s. Its log:\n{self.log}")
            time.sleep(POLL_INTERVAL)

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._process = None


def _check_database_is_shared() -> None:
    connection = connections[settings.DATABASE]
    if connection.in_atomic_block:
        raise NotPossible(
            "A daemon cannot see what an open transaction has enqueued. Use TransactionTestCase or "
            "pytest's fixture transactional_db, or call drain() instead of starting a daemon."
        )
    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]
        raise NotPossible(
            "A daemon needs a database that other processes can open, not one in memory. Name a "
            "file in DATABASES['default']['TEST'] = {'NAME': …}, or call drain() instead."
        )


def _make_environment(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the daemon's environment, with the variables that ``atp.testing.starting`` reads."""
    databases = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        DATABASES: json.dumps(databases),
        UNMIGRATED: json.dumps(_is_unmigrated()),
        MODULES: json.dumps(modules),
    }


def _is_unmigrated() -> bool:
    """Return True if Django created the test's tables from the models, without migrations.

    That happens with pytest's ``--nomigrations`` and with ``TEST = {"MIGRATE": False}``. Such
    tables only lack storage parameters on PostgreSQL, so the queue works.
    """
    applied = MigrationRecorder(connections[settings.DATABASE]).applied_migrations()
    return all(app != "atp" for app, _ in applied)


def _find_descendants(pid: int) -> list[int]:
    return [each.pid for each in descendants.descendants([pid])[pid]]


def _is_running(pid: int) -> bool:
    entry = descendants.table().get(pid)
    return entry is not None and not entry.is_dead
