"""A run that takes too long: first it tells where everything stands, then it ends."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil

# Minutes until a run is ended, and one of everything. It is told where everything stands after this
# part of them.
MINUTES, MINUTES_OF_ALL = 70.0, 200.0
TOLD_AFTER = 0.8


def watch(urls, end, minutes):
    """Watch this run from now on; ``urls()`` names its servers, ``end()`` ends what still runs."""
    for seconds, do in ((minutes * 60 * TOLD_AFTER, lambda: tell(urls())), (minutes * 60, end)):
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        timer.start()


def tell(urls=()):
    """Print the stacks of all Python processes of this run, and the sessions of its servers."""
    print("\n=== This run takes long. Where everything stands:", flush=True)
    for process in psutil.Process(os.getpid()).children(recursive=True):
        print(f"\n--- {_described(process)}\n{_stacks(process.pid)}", flush=True)
    for url in urls:
        print(f"\n--- {url}\n{_activity(url)}", flush=True)


def _described(process):
    try:
        return f"{process.pid}, {process.status()}: {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} has ended"


def _stacks(pid):
    """Return the stacks of the threads of a process, none if it does not run Python."""
    command = [str(Path(sys.executable).parent / "py-spy"), "dump", "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else ""


def _activity(url):
    """Return what the sessions of a server do, as far as it answers."""
    query = (
        "SELECT pid, state, wait_event, now() - xact_start, pg_blocking_pids(pid), left(query, 300)"
        " FROM pg_stat_activity WHERE datname IS NOT NULL ORDER BY xact_start"
    )
    try:
        import psycopg2

        with psycopg2.connect(url, connect_timeout=5) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return "\n".join(map(str, cursor.fetchall()))
    except Exception as error:
        return f"no answer: {error}"
