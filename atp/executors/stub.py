"""What an engine runs: it hands a ticket to the keeper of its host, and waits.

Nothing of Django is imported here: the worker of an engine may have threads, and other work. The
workers that one process of the engine has started share a keeper, which the first of them starts.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# What the first process of a keeper runs. It loads the project, or says why that has failed. The
# keeper is its child, so that no engine takes it for a child of its own worker.
_MAIN = """
import os, sys, traceback
try:
    import django
    django.setup()
    from atp.daemon import keeper
except BaseException as error:
    traceback.print_exc()
    print(f"{type(error).__name__}: {error}")
    sys.exit(1)
if os.fork():
    os._exit(0)
os.setsid()
os.dup2(2, 1)
keeper.main(sys.argv[1])
"""
# The names of keepers' sockets end so.
SOCKET = ".sock"
# A keeper has to load the project within this time, in seconds.
START_WITHIN = 60.0
# The variable by which programs find the GPUs that they may use.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_lock = threading.Lock()
_keepers: "dict[int, _Keeper]" = {}


class TicketRefused(Exception):
    """The attempt of a ticket has not run, or not to its end; the message says why."""


class _Keeper:
    """The connection of this process to its keeper, and the threads that wait for answers."""

    def __init__(self) -> None:
        self._link = _connect()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[threading.Event, list[str]]] = {}
        self.is_dead = False
        threading.Thread(target=self._read, name="atp-keeper", daemon=True).start()

    def run(self, ticket: str) -> str:
        """Run the attempt of a ticket; return what went wrong, or ""."""
        event = threading.Event()
        errors: list[str] = []
        with _lock:
            number = next(self._numbers)
            self._waiting[number] = event, errors
            # An engine may give its worker other GPUs with each ticket.
            facts = {"number": number, "text": ticket, "visible": os.environ.get(VISIBLE)}
            try:
                self._link.sendall(json.dumps(facts).encode() + b"\n")
            except OSError:
                self._end()
        event.wait()
        return "".join(errors)

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._link.makefile("rb") as lines:
            for line in lines:
                found = json.loads(line)
                with _lock:
                    event, errors = self._waiting.pop(found["number"])
                errors.append(found["error"])
                event.set()
        with _lock:
            self._end()

    def _end(self) -> None:
        self.is_dead = True
        for event, errors in self._waiting.values():
            errors.append("the keeper has died")
            event.set()
        self._waiting.clear()


def _connect() -> socket.socket:
    """Return a connection to the keeper; start one if there is none. Raises TicketRefused."""
    folder = _folder()
    path = folder / _name()
    # One of at most 256 locks: a keeper that loads its project for long keeps few others waiting.
    with (folder / f"{path.name[:2]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        link = _reach(path)
        if link is not None:
            return link
        for left in folder.glob(f"*{SOCKET}"):
            # Keepers that were killed have left theirs.
            if _is_dead(left):
                left.unlink(missing_ok=True)
        end = time.monotonic() + START_WITHIN
        _start(path)
        while time.monotonic() < end:
            link = _reach(path)
            if link is not None:
                return link
            time.sleep(0.02)
    raise TicketRefused(f"no keeper has started within {START_WITHIN:g} s")


def _start(path: Path) -> None:
    """Start a keeper at this path. Raises TicketRefused if it cannot load the project."""
    command = [sys.executable, "-c", _MAIN, str(path)]
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=START_WITHIN,
        )
    except subprocess.TimeoutExpired:
        raise TicketRefused(f"the project was not loaded within {START_WITHIN:g} s") from None
    except subprocess.CalledProcessError as error:
        why = (error.stdout or "").strip().rpartition("\n")[2] or f"exit status {error.returncode}"
        raise TicketRefused(f"{socket.gethostname()} cannot load the project: {why}") from None


def _reach(path: Path) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(str(path))
    except OSError:
        link.close()
        return None
    return link


def _is_dead(path: Path) -> bool:
    link = _reach(path)
    if link is not None:
        link.close()
    return link is None


def _folder() -> Path:
    """Return the folder of this user's keepers. Raises TicketRefused if others may use it."""
    folder = Path(tempfile.gettempdir()) / f"atp-keepers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise TicketRefused(f"{folder} must belong to this user, and nobody else may use it")
    return folder


def _name() -> str:
    """Return a name for the keeper of the workers that have the same parent and the same code."""
    settings = os.environ.get("DJANGO_SETTINGS_MODULE"), os.environ.get("PYTHONPATH")
    facts = repr((os.getppid(), sys.executable, os.getcwd(), settings))
    return hashlib.sha256(facts.encode()).hexdigest()[:24] + SOCKET


def run(ticket: str) -> None:
    """Run the attempt of a ticket, and return when it has ended.

    The keeper reports the result to the daemon that has made the ticket. Raises TicketRefused.
    """
    with _lock:
        # A fork of this process lacks the threads of its parent.
        keeper = _keepers.get(os.getpid())
        if keeper is None or keeper.is_dead:
            keeper = _keepers[os.getpid()] = _Keeper()
    error = keeper.run(ticket)
    if error:
        raise TicketRefused(error)
