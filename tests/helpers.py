"""What tests share: waiting for a condition, threads, processes of the same run."""

import io
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from urllib.parse import quote, urlencode

from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import QuerySet

from . import environment, patience

NOBODY = 65534
# Long enough for a loaded machine; a test that passes never waits for it.
DEADLINE = 120.0 * patience.factor()


def wait_for(condition, timeout=DEADLINE, what="the condition"):
    """Wait until ``condition()`` is true and return its value; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout} s")
        time.sleep(0.01)


def stays(condition, seconds, what="the condition"):
    """Fail as soon as ``condition()`` is false within the next ``seconds`` seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            raise AssertionError(f"{what} did not stay true for {seconds} s")
        time.sleep(0.01)


class Thread(threading.Thread):
    """A thread with database connections of its own, whose outcome is collected."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self._function, self._args, self._outcome = function, args, Future()
        self.start()

    def run(self):
        try:
            self._outcome.set_result(self._function(*self._args))
        except BaseException as error:
            self._outcome.set_exception(error)
        finally:
            connections.close_all()

    def result(self, timeout=DEADLINE):
        """Wait for its end, then return what the function returned or raise what it raised."""
        self.join(timeout)
        if self.is_alive():
            raise AssertionError(f"{self._function} did not end within {timeout} s")
        return self._outcome.result()


def at_once(*functions, timeout=DEADLINE):
    """Call the functions in threads that start together; returns their outcomes in order.

    An outcome is what the function returned, or the exception that it raised.
    """
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait(DEADLINE)
        try:
            return function()
        except Exception as error:
            return error

    threads = [Thread(run, function) for function in functions]
    return [thread.result(timeout) for thread in threads]


def database_url(alias="default"):
    """Return the URL of the database that this test is on right now."""
    entry = connections[alias].settings_dict
    if entry["ENGINE"].endswith("sqlite3"):
        return f"sqlite:///{entry['NAME']}"
    host, port = entry["HOST"] or entry["OPTIONS"].get("host", ""), entry["PORT"]
    login = ":".join(quote(entry[part], safe="") for part in ("USER", "PASSWORD") if entry[part])
    if host.startswith("/"):
        query = urlencode({"host": host, "port": port} if port else {"host": host})
        return f"postgresql://{login}@/{entry['NAME']}?{query}"
    return f"postgresql://{login}@{host}{f':{port}' if port else ''}/{entry['NAME']}"


def child_environment(**more):
    """Return the environment of a process that is to see this test's database and files."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": database_url(),
        "ATP_TEST_DATABASE": environment.kind(),
        "ATP_TEST_DIR": str(environment.folder()),
        "PYTHONPATH": str(environment.ROOT),
        **more,
    }


def manage(*args):
    """Return the command line of ``manage.py`` for a process of this test."""
    return [sys.executable, str(environment.ROOT / "manage.py"), *args]


def shell(*words):
    """Return what ``manage.py atp`` prints for these words."""
    out = io.StringIO()
    call_command("atp", *words, stdout=out)
    return out.getvalue()


def run_python(source, *options, **environment):
    """Run a script in a process of this test, and return what it prints."""
    command = [sys.executable, *options, "-c", source]
    own = child_environment(**environment)
    ended = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def remove_by_hand(rows):
    """Remove rows as a hand in the database does, whatever their state; ``rows`` is a QuerySet."""
    return QuerySet.delete(rows)


@contextmanager
def open_transaction(work):
    """Somebody else's transaction, in which ``work()`` was done; it ends with the block."""
    done, end = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            work()
            done.set()
            assert end.wait(DEADLINE)

    thread = Thread(hold)
    assert done.wait(DEADLINE)
    try:
        yield
    finally:
        end.set()
        thread.result()


def as_nobody(function):
    """Return what ``function()`` returns, a text, when another user calls it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, function().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return text
