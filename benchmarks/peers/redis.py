"""A Redis of the benchmark's own, with the durability that it has by default."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import closing, contextmanager

from .commands import run
from .failure import Failure

START_WITHIN = 30
NAME = "redis-server"


class Redis:
    """A server; it knows no databases of its own for each participant, so it is emptied."""

    def __init__(self, path, told):
        self.place = {"path": str(path)}
        self.told = told
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))

    @contextmanager
    def emptied(self):
        self._ask("FLUSHALL")
        yield self

    def unfinished(self, commands):
        return sum(int(self._ask(command)) for command in commands.split("; "))

    def settle(self):
        """Nothing: Redis has nothing to do."""

    def written(self):
        return None

    def close(self):
        self._socket.close()

    def _ask(self, command):
        """Send a command of the inline protocol; return its answer, which is one line."""
        self._socket.sendall(command.encode() + b"\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += self._socket.recv(4096)
        if answer.startswith(b"-"):
            raise Failure(f"Redis to {command}: {answer.decode().strip()}")
        return answer[1:].decode().strip()


@contextmanager
def redis(directory):
    """Run a Redis, on a socket in a directory, until the end of the block. Raises Failure."""
    program = _program()
    path = directory / "redis.sock"
    log = directory / "redis.log"
    # Without a file of configuration it has the defaults that it was built with.
    with log.open("wb") as file:
        process = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", str(path), "--dir", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        deadline = time.monotonic() + START_WITHIN
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failure("redis-server did not start", log.read_text(errors="replace"))
            time.sleep(0.05)
        version = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        ).stdout.split()[2]
        durability = "default durability: snapshots (save 3600 1 300 100 60 10000), no AOF"
        with closing(Redis(path, f"Redis {version.removeprefix('v=')}, {durability}")) as server:
            yield server
    finally:
        process.terminate()
        process.wait()


def _program():
    """Return the program, installed with apt-get if need be. Raises Failure."""
    if not shutil.which(NAME):
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", NAME]):
            command = [*_apt_get(), *arguments]
            print(f"no {NAME} yet: {' '.join(command)}", flush=True)
            run(f"there is no {NAME}, and apt-get failed", *command)
    program = shutil.which(NAME)
    if not program:
        raise Failure(f"apt-get has installed {NAME}, but it is not on the PATH")
    return program


def _apt_get():
    if not shutil.which("apt-get"):
        raise Failure("there is no redis-server, and no apt-get to install one")
    # In run level 1 no service is started when it is installed.
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"]
    command = [*quiet, "apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    if os.geteuid() == 0:
        return command
    if not shutil.which("sudo"):
        raise Failure("there is no redis-server, and installing one takes root or sudo")
    # With -n it fails where it would ask for a password.
    return ["sudo", "-n", *command]
