"""A web server in processes of its own, and many clients of it at once."""

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass

HOST = "127.0.0.1"
# A server has to answer within this after its start, in seconds.
STARTS_WITHIN = 60
LIVE = "/atp/api/health/live"


class ServerError(Exception):
    """A server did not do what it was started for; the message says which."""


@dataclass(frozen=True)
class Answer:
    """What a client got: status, headers in small letters, body, and after how many seconds."""

    status: int
    headers: dict
    body: bytes
    seconds: float


def gunicorn(project, port, *, workers=2, threads=8):
    """Return the command line of gunicorn with threads."""
    own = ["-k", "gthread", "-w", str(workers), "--threads", str(threads), "--no-control-socket"]
    return [sys.executable, "-m", "gunicorn", *own, "-b", f"{HOST}:{port}", f"{project}.wsgi"]


def uvicorn(project, port, *, workers=1):
    """Return the command line of uvicorn."""
    own = ["--workers", str(workers), "--host", HOST, "--port", str(port), "--log-level", "warning"]
    return [sys.executable, "-m", "uvicorn", *own, f"{project}.asgi:application"]


@contextmanager
def serving(command, port, log_path, environment=None):
    """Run a server, and give its process once it answers. Raises ServerError."""
    with open(log_path, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _wait_for(process, port, log_path)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # clients that wait are not waited for
                process.kill()
                process.wait()


def _wait_for(process, port, log_path):
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}{LIVE}", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    with open(log_path) as log:
        raise ServerError(f"The server does not answer: {log.read()}")


async def get(port, path, **headers):
    """Ask for a path on a connection of its own, and return the Answer."""
    began = time.monotonic()
    reader, writer = await connected(port, path, **headers)
    try:
        whole = await reader.read()
    finally:
        writer.close()
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    found = dict(line.lower().split(": ", 1) for line in lines)
    if found.get("transfer-encoding") == "chunked":
        body = body.partition(b"\r\n")[2].partition(b"\r\n0\r\n")[0]
    return Answer(int(first.split()[1]), found, body, time.monotonic() - began)


async def connected(port, path, **headers):
    """Send a request, and return the reader and the writer of its connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    own = {"Host": f"{HOST}:{port}", "Connection": "close", **headers}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()
    return reader, writer


async def probing(port, path, until, every=0.05):
    """Ask for a path again and again until the event is set, and return the Answers."""
    found = []
    while not until.is_set():
        found.append(await get(port, path))
        await asyncio.sleep(every)
    return found
