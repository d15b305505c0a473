"""Starts and stops the demo's child processes: a web server, daemons, a cluster."""

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
    """A child process that runs Python with arguments, and writes its output to a file."""

    def __init__(self, name, arguments, *, log):
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                # Ctrl-C in the terminal reaches only the demo, which stops its children gracefully.
                process_group=0,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (there are no threads)
            )

    @property
    def pid(self):
        return self._process.pid

    @property
    def status(self):
        """The exit status of the process, or None while it runs."""
        return self._process.poll()

    def check(self):
        """Raise DemoError with the end of the log if the process has ended."""
        if self.status is not None:
            raise DemoError(
                f"The {self.name} ended with status {self.status}. "
                f"The end of its log, {self.log}:\n\n{self.tail()}"
            )

    def tail(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL:])

    def stop(self, patience):
        """Terminate the process, wait until it has ended, and return its exit status.

        After ``patience`` seconds the process is killed. An interrupt during the wait terminates
        the process again, and a daemon then stops at once.
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
    """Make the kernel stop this process if the demo itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start_web(port, *, manage, log):
    """Start the web server, and return its process and port. Raises DemoError."""
    # Port 0 means any free port. Another process can take a port that looks free before the server
    # binds it, so there are several candidates.
    candidates = [port] if port is not None else [DEFAULT_PORT, 0, 0]
    for candidate in candidates:
        if port is None and candidate and not _is_free(candidate):
            continue
        arguments = [manage, "runserver", "--noreload", f"127.0.0.1:{candidate}"]
        child = Child("web server", arguments, log=log)
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
    """Return the port that the server reports in its log, or None if the server ended."""
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
    """Return the HTTP status of the web server's response for a path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
