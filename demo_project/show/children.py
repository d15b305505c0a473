"""The processes that the demo runs beside itself: the web server and the daemon."""

import ctypes
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time

from . import DemoError

DEFAULT_PORT = 8000
TAIL = 20
_ADDRESS = re.compile(r"at http://127\.0\.0\.1:(\d+)/")
_PR_SET_PDEATHSIG = 1


class Child:
    """A ``manage.py`` command in a process of its own, with its output in a file."""

    def __init__(self, name, command, *, manage, log):
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(manage), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                # Ctrl-C in the terminal is for the demo, which stops its children in order.
                process_group=0,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (there are no threads)
            )

    @property
    def pid(self):
        return self._process.pid

    @property
    def status(self):
        """The exit status, or None while it runs."""
        return self._process.poll()

    def check(self):
        """Raise DemoError, with the end of its log, if it has ended."""
        if self.status is not None:
            raise DemoError(
                f"The {self.name} ended with status {self.status}. "
                f"The end of its log, {self.log}:\n\n{self.tail()}"
            )

    def tail(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL:])

    def stop(self, patience):
        """Ask it to end and wait; after ``patience`` seconds it is killed. Returns its status.

        An interrupt while waiting asks once more, which for a daemon means at once.
        """
        for _ in range(2):
            self._process.terminate()
            try:
                return self._process.wait(patience)
            except KeyboardInterrupt:
                patience = 5
            except subprocess.TimeoutExpired:
                break
        self._process.kill()
        return self._process.wait()


def _end_with_parent():
    """Have the kernel stop this process if the demo is killed and cannot do so itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start_web(port, *, manage, log):
    """Start the web server; returns the process and the port. Raises DemoError."""
    # Port 0 is any that is free. A port that looks free may be taken by
    # another before the server has it.
    candidates = [port] if port is not None else [DEFAULT_PORT, 0, 0]
    for candidate in candidates:
        if port is None and candidate and not _is_free(candidate):
            continue
        command = ["runserver", "--noreload", f"127.0.0.1:{candidate}"]
        child = Child("web server", command, manage=manage, log=log)
        bound = _wait_until_bound(child)
        if bound is not None:
            return child, bound
    raise DemoError(
        f"The web server did not start on port {candidates[-1]}. "
        f"The end of its log, {child.log}:\n\n{child.tail()}"
    )


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _wait_until_bound(child, patience=60):
    """Return the port that the server says it has, or None if it ended."""
    deadline = time.monotonic() + patience
    while child.status is None and time.monotonic() < deadline:
        found = _ADDRESS.search(child.log.read_text(errors="replace"))
        if found:
            return int(found[1])
        time.sleep(0.05)
    if child.status is None:
        child.stop(patience=5)
    return None


def answer(port, path):
    """Return the HTTP status with which the web server answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
