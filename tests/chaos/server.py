"""The database of a run: a PostgreSQL server that can be killed and restarted, or a SQLite file."""

import contextlib
import os
import signal
import subprocess
import threading
import time

from django.db import DatabaseError, connection

from tests.helpers import DEADLINE, wait_for
from tests.postgres import EmbeddedPostgres

from .record import uptime

VERSION = 18
_SIGNALS = {"SIGKILL": signal.SIGKILL, "immediate": signal.SIGQUIT, "fast": signal.SIGINT}


class Server(EmbeddedPostgres):
    """A PostgreSQL server whose postmaster is a child of this process, which notices its death.

    ``outages`` are pairs of times on the uptime clock between which the server was down.
    """

    def __init__(self, folder):
        super().__init__(folder, VERSION)
        self.outages = []
        self._process = None
        self._lock = threading.Lock()

    def start(self):
        """Make the database cluster if there is none, and start the server."""
        self.prepare()
        self._run()

    def _run(self):
        """Start the server, again and again until the remains of an earlier one have ended."""

        def started():
            if self._process is None or self._process.poll() is not None:
                self._launch()
            return self._is_ready()

        wait_for(started, what="PostgreSQL")

    def _launch(self):
        command = [str(self.program("postgres")), "-D", str(self.folder), "-k", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-c", "listen_addresses="],
                user=self.system_user,
                cwd="/",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_ready(self):
        arguments = ["-q", "-h", str(self.folder)]
        return subprocess.run([self.program("pg_isready"), *arguments], check=False).returncode == 0

    def url(self, database="postgres"):
        return self.url_at(self.folder, database)

    @staticmethod
    def url_at(folder, database="postgres"):
        """Return the URL of the database for a folder that contains the server's socket."""
        return f"postgresql://postgres:@/{database}?host={folder}"

    def stop(self, mode="fast"):
        if self._process is not None:
            self._process.send_signal(_SIGNALS[mode])
            self._process.wait(DEADLINE)

    def restart(self, how, span):
        """Stop the server in one of three ways, and start it again after this many seconds."""
        with self._lock:
            down = uptime()
            self.stop(how)
            time.sleep(span)
            self._run()
            self.outages.append((down, uptime()))

    def terminate_backend(self, fraction):
        """End a connection of another process; return a text about it, or None if there is none."""
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid, left(query, 40) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
            )
            found = cursor.fetchall()
            if not found:
                return None
            pid, query = found[int(fraction * len(found))]
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            return f"pid {pid}, last at {query!r}"


def is_back():
    """Return True if the database answers."""
    try:
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return True
    except DatabaseError:
        return False


def start(kind, folder):
    """Start the database of a run, and return its URL and the Server, None for SQLite."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/db.sqlite3", None
    os.environ["ATP_TEST_DIR"] = str(folder)
    server = Server(folder / "postgres")
    server.start()
    return server.url(), server
