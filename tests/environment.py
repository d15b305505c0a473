"""Where a test run keeps its files and its database.

What is decided here goes on in the environment, so a process that a test
starts finds the same folder and the same kind of database:

``ATP_TEST_DATABASE``
    ``sqlite`` (the default), ``postgres`` or ``postgres16``.
``DATABASE_URL``
    Another database of that kind; without it PostgreSQL is started here.
``ATP_TEST_DIR``
    The folder of the run: media files, scratch directories, the SQLite file.
``ATP_TEST_SETTINGS``
    A JSON object that goes over ``settings.ATP``, for processes that tests start.
``ATP_TEST_NONSENSE``
    If it is set, the messages of the log are nonsense (:mod:`tests.nonsense`).
"""

import atexit
import functools
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

import environ

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"sqlite": None, "postgres": 18, "postgres16": 16}

# As the demo has them: what SQLite needs to be a queue, and what makes a
# server stop what it was doing for a client that is gone. Only that nothing is
# waited for until it is on the disk: what a process has written lies with the
# operating system when it is killed, and nothing here has to survive the machine.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
}
POSTGRES_OPTIONS = {"options": "-c client_connection_check_interval=1000"}


def kind():
    """Return which kind of database this run is on, a key of KINDS."""
    given = os.environ.get("ATP_TEST_DATABASE")
    if given is None:
        given = "postgres" if _is_postgres(os.environ.get("DATABASE_URL", "")) else "sqlite"
    if given not in KINDS:
        raise ValueError(f"ATP_TEST_DATABASE={given!r}: must be one of {', '.join(KINDS)}")
    return given


_one_start_at_a_time = threading.Lock()


@functools.cache
def folder():
    """Return the folder of the run, made by its first process and removed when that ends."""
    if "ATP_TEST_DIR" not in os.environ:
        made = Path(tempfile.mkdtemp(prefix="atp-tests-"))
        os.environ["ATP_TEST_DIR"] = str(made)
        at_exit_of_this_process(shutil.rmtree, made, ignore_errors=True)
    return Path(os.environ["ATP_TEST_DIR"])


def database():
    """Return the entry of DATABASES, starting the server if there is none yet."""
    chosen, url = kind(), os.environ.get("DATABASE_URL", "")
    if chosen == "sqlite":
        if not url.startswith("sqlite"):
            url = f"sqlite:///{folder()}/db.sqlite3"
        entry = environ.Env.db_url_config(url)
        entry["TEST"] = {"NAME": str(folder() / "test.sqlite3")}
        entry["OPTIONS"] = SQLITE_OPTIONS | entry.get("OPTIONS", {})
        return entry
    if not _is_postgres(url):
        url = os.environ["DATABASE_URL"] = start_postgres(KINDS[chosen]).url()
    entry = environ.Env.db_url_config(url)
    entry["OPTIONS"] = POSTGRES_OPTIONS | entry.get("OPTIONS", {})
    return entry


def atp_settings():
    """Return what goes over ``settings.ATP``."""
    return json.loads(os.environ.get("ATP_TEST_SETTINGS", "{}"))


def is_nonsense():
    """Whether the messages of the log are nonsense in this run."""
    return bool(os.environ.get("ATP_TEST_NONSENSE"))


def at_exit_of_this_process(function, *args, **kwargs):
    """Call the function when this process ends, but not when one forked from it does."""
    owner = os.getpid()

    def guarded():
        if os.getpid() == owner:
            function(*args, **kwargs)

    atexit.register(guarded)


def start_postgres(version, name="postgres"):
    """Start a server of this version for as long as this process lives; ``name`` tells it apart."""
    from .postgres import EmbeddedPostgres

    with _one_start_at_a_time:
        server = EmbeddedPostgres(folder() / f"server-{name}", version)
        at_exit_of_this_process(server.stop)
        server.start()
        return server


def _is_postgres(url):
    return url.startswith(("postgres", "pgsql", "psql"))
