"""The database of a run: a PostgreSQL server that faults hit, or a SQLite file."""

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
SIGNALS = {"SIGKILL": signal.SIGKILL, "immediate": signal.SIGQUIT, "fast": signal.SIGINT}
# The row is chosen without a lock: FOR UPDATE would lock the rows that OFFSET passes over, too.
_ANY = (
    "SELECT {key} FROM {table} {where} ORDER BY 1 "
    "OFFSET floor(%s * (SELECT count(*) FROM {table} {where})) LIMIT 1"
)
_LIVE = "(SELECT id FROM atp_instance WHERE finished IS NULL)"
# What is locked, by name: the rows of a table with one of these keys, which ``member`` chooses.
_LOCKS = {
    "task": ("atp_task", "instance_id", "WHERE daemon_id IS NOT NULL"),
    "waiting task": ("atp_task", "instance_id", "WHERE daemon_id IS NULL"),
    "instance": ("atp_instance", "id", "WHERE finished IS NULL"),
    "inputs": ("atp_inputs", "instance_id", f"WHERE instance_id IN {_LIVE}"),
    "log": ("atp_logrecord", "instance_id", f"WHERE instance_id IN {_LIVE}"),
    "daemon": ("atp_daemon", "id", ""),
    "limit": ("atp_limit", "id", ""),
    "type": ("atp_type", "id", ""),
}
OF_INSTANCES = ("task", "waiting task", "instance", "inputs", "log")
HOWS = (*_LOCKS, *OF_INSTANCES)


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
        """Start the server, again and again until the remains of an earlier one have ended."""
        self.prepare()
        folder = str(self.folder)
        command = [self.program("postgres"), "-D", folder, "-k", folder, "-c", "listen_addresses="]
        own = {"user": self.system_user, "cwd": "/", "start_new_session": True}
        look = [self.program("pg_isready"), "-q", "-h", folder]

        def is_ready():
            if self._process is None or self._process.poll() is not None:
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(command, stdout=log, stderr=log, **own)
            return subprocess.run(look, check=False).returncode == 0

        wait_for(is_ready, what="PostgreSQL")

    def url(self, database="postgres", folder=None):
        """Return the URL of a database; a folder other than the server's has its socket, too."""
        return f"postgresql://postgres:@/{database}?host={folder or self.folder}"

    def stop(self, mode="fast"):
        if self._process is not None:
            self._process.send_signal(SIGNALS[mode])
            self._process.wait(DEADLINE)

    def restart(self, how, span):
        """Stop the server in one of three ways, and start it again after this many seconds."""
        with self._lock:
            down = uptime()
            self.stop(how)
            time.sleep(span)
            self.start()
            self.outages.append((down, uptime()))

    def terminate_backend(self, fraction):
        """End a connection of another process; return a text about it, or None if there is none."""
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid, left(query, 40) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
            )
            if not (found := cursor.fetchall()):
                return None
            pid, query = found[int(fraction * len(found))]
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            return f"pid {pid}, last at {query!r}"


def hold(how, member, span):
    """Lock the rows of one key for this many seconds, then roll back.

    Returns a text about the rows, and the uuid of the Instance that was locked, or "".
    """
    table, key, where = _LOCKS[how]
    chosen = _ANY.format(table=table, key=key, where=where)
    with contextlib.closing(connection.copy()) as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                f"SELECT {key} FROM {table} WHERE {key} = ({chosen}) FOR UPDATE SKIP LOCKED",
                [member],
            )
            row = cursor.fetchone()
            if row is None:
                return f"there was no {how} to be locked", ""
            uuid = ""
            if how in OF_INSTANCES:
                cursor.execute("SELECT uuid FROM atp_instance WHERE id = %s", row)
                uuid = str(cursor.fetchone()[0])
            time.sleep(span)
        other.rollback()
    return f"{how} {row[0]} was locked", uuid


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
