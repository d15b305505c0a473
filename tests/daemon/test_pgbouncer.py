"""A daemon behind PgBouncer, which gives a connection to others after each transaction."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest
from django.db import connection

from atp.models import Task
from atp.states import State
from tests import environment
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for

from .scenario import on_postgresql

pytestmark = [
    on_postgresql,
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed"),
]

CONFIGURATION = """
[databases]
* = host={server} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 10
ignore_startup_parameters = extra_float_digits,options
"""


@pytest.fixture
def bouncer(transactional_db):
    """A PgBouncer before the server of this test: its URL, and its log."""
    entry = connection.settings_dict
    server = entry["HOST"] or entry["OPTIONS"].get("host", "localhost")
    # Where the server is, whose owner may come here.
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=environment.folder()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "users").write_text(f'"{entry["USER"]}" "{entry["PASSWORD"]}"\n')
    (folder / "ini").write_text(
        CONFIGURATION.format(
            server=server, server_port=entry["PORT"] or 5432, port=port, folder=folder
        )
    )
    user = _user_of(server, folder)
    program = shutil.which("pgbouncer")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, folder / "ini"], stdout=log, stderr=log, user=user)
    try:
        wait_for(lambda: _answers(port), what="pgbouncer")
        login = f"{entry['USER']}:{entry['PASSWORD']}"
        yield f"postgresql://{login}@127.0.0.1:{port}/{entry['NAME']}", folder / "log"
    finally:
        process.kill()
        process.wait()


def _user_of(server, folder):
    """Whoever may see the server's socket: PgBouncer refuses to run as root."""
    if psutil.Process().uids().effective != 0:
        return None
    if not server.startswith("/"):
        return "nobody"
    owner = os.stat(server).st_uid
    for path in (folder, *folder.iterdir()):
        os.chown(path, owner, -1)
    return owner


def _answers(port):
    with socket.socket() as end:
        return end.connect_ex(("127.0.0.1", port)) == 0


def test_daemon_works_behind_pgbouncer(atpd, bouncer, record):
    """G1, G15: nothing is prepared, nobody listens; waiting tasks are found by polling."""
    url, log = bouncer
    daemon = atpd(processes=2, environment={"DATABASE_URL": url}).ready(workers=2)
    daemon.wait_for_fact("pooled")
    for number in range(10):
        types.note.enqueue(path=str(record), number=number).wait(DEADLINE)
    types.note.enqueue_many({"path": str(record), "number": n} for n in range(10, 2000))
    retried = types.again.enqueue(times=10)
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")
    retried.wait(DEADLINE)
    assert (retried.state, retried.attempt) == (State.FINISHED, 11)
    assert set(record.numbers("ran").items()) == {(number, 1) for number in range(2000)}
    assert daemon.stop() == 0
    assert not [fact for fact in daemon.facts() if fact["level"] == "ERROR"]
    assert "when not linked" not in log.read_text()
