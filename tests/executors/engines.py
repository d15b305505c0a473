"""The engines that run here: each is a context manager that gives an :class:`Engine`.

The workers of Dask and Ray are on a host of their own, in a network namespace behind a link that
can be cut, if this process may make one. Otherwise they are on this host.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

import psutil

from tests import patience
from tests.app.tasks_executors import environment_of_engine
from tests.helpers import child_environment, wait_for

SLOTS = 8
MAY_MAKE_HOSTS = os.geteuid() == 0 and shutil.which("ip") is not None


class Host:
    """Another host: a network namespace, with a link to this one.

    ``here`` and ``there`` are the addresses of this host and of the other on the link. Other
    processes that run tests have links of their own.
    """

    def __init__(self):
        self.name = f"atp{os.getpid()}"
        net = ip_address("10.91.0.0") + 4 * (os.getpid() % 2**14)
        self.here, self.there = str(net + 1), str(net + 2)
        self._link = f"{self.name}l"

    def __enter__(self):
        other = f"{self.name}r"
        _ip(f"netns add {self.name}")
        _ip(f"link add {self._link} type veth peer name {other} netns {self.name}")
        _ip(f"addr add {self.here}/30 dev {self._link}")
        _ip(f"link set {self._link} up")
        _ip(f"-n {self.name} addr add {self.there}/30 dev {other}")
        for name in (other, "lo"):
            _ip(f"-n {self.name} link set {name} up")
        return self

    def __exit__(self, *error):
        _ip(f"netns delete {self.name}")
        with suppress(subprocess.CalledProcessError):
            _ip(f"link delete {self._link}")

    def on_it(self, command):
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self):
        _ip(f"link set {self._link} down")

    def mend(self):
        _ip(f"link set {self._link} up")


class ThisHost:
    """This host in place of another."""

    here, there = "127.0.0.1", None

    def on_it(self, command):
        return command


def _other_host():
    return Host() if MAY_MAKE_HOSTS else nullcontext(ThisHost())


def _ip(words):
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


@dataclass
class Engine:
    """An engine: the ``options`` of its executor, and its processes, which start again if killed.

    ``commands`` are the command lines of its head and of its workers, by their names, and
    ``worker`` is that of a further one. ``pause`` is the time in seconds that it takes to start
    again. If ``ends_with_head``, nothing of it works after a kill of its head.
    """

    options: dict
    commands: dict = field(default_factory=dict)
    worker: list | None = None
    host: Host | None = None
    folder: Path | None = None
    pause: float = 2.0
    ends_with_head: bool = False

    def __post_init__(self):
        self._processes = {}

    def start(self):
        for name, command in self.commands.items():
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                self._processes[name] = subprocess.Popen(
                    command,
                    env=child_environment(**environment_of_engine()),
                    cwd=self.folder,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def add_worker(self, *words):
        """Start a further worker, with these words on its command line."""
        self.commands[f"worker {len(self.commands)}"] = [*self.worker, *words]
        self.start()

    def pids(self, kind):
        """Return the pids of its processes of a kind, and of all that these have started."""
        names = [name for name in self._processes if name.startswith(kind)]
        return [each.pid for name in names for each in _family(self._processes[name].pid)]

    def kill(self, kind):
        """Kill the head, or some worker with all that it has started, and start another."""
        names = [name for name in self.commands if name.startswith(kind)]
        if not names:
            return
        chosen = [random.choice(names)]
        if kind == "head" and self.ends_with_head:
            chosen = list(self.commands)
        for name in chosen:
            for process in _family(self._processes[name].pid):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._processes[name].wait()
        self.start()

    def stop(self):
        for process in self._processes.values():
            family = _family(process.pid)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10 * patience.factor())
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()


def _family(pid):
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def fork(folder):
    """Run attempts on this host, by the daemon itself."""
    own = environment_of_engine()
    yield Engine({"BACKEND": "atp.executors.Fork", "SLOTS": SLOTS, "ENVIRONMENT": own})


@contextmanager
def dask(folder, workers=2):
    """Have a scheduler of Dask, and ``workers`` of four threads each."""
    with _other_host() as host:
        port = _free_port()
        address = f"tcp://{host.here}:{port}"
        head = ["distributed.cli.dask_scheduler", "--host", host.here, "--port", str(port)]
        worker = ["distributed.cli.dask_worker", address, "--nthreads", "4", "--no-dashboard"]
        worker = host.on_it([sys.executable, "-m", *worker])
        engine = Engine(
            {"BACKEND": "atp.executors.Dask", "ADDRESS": address, "SLOTS": SLOTS},
            {"head": [sys.executable, "-m", *head, "--no-dashboard"]}
            | {f"worker {number}": worker for number in range(1, workers + 1)},
            worker,
            host=host if MAY_MAKE_HOSTS else None,
            folder=folder,
        )
        with _running(engine, host.here, port):
            yield engine


@contextmanager
def ray(folder):
    """Have a head of Ray that runs nothing, and a node that runs eight tasks at once."""
    with _other_host() as host:
        port = _free_port()
        address = f"{host.here}:{port}"
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        head = ["--head", "--port", str(port), "--node-ip-address", host.here]
        head += ["--include-dashboard=false"]
        node = ["--address", address, "--num-cpus", str(SLOTS)]
        if host.there:
            node += ["--node-ip-address", host.there]
        engine = Engine(
            {"BACKEND": "atp.executors.Ray", "ADDRESS": address, "SLOTS": SLOTS},
            {
                "head": [*command, *head, "--num-cpus", "0"],
                "worker 1": host.on_it([*command, *node]),
            },
            host=host if MAY_MAKE_HOSTS else None,
            folder=folder,
            pause=10.0,
            ends_with_head=True,
        )
        with _running(engine, host.here, port):
            yield engine


@contextmanager
def _running(engine, address, port):
    engine.start()
    try:
        wait_for(lambda: _is_open(address, port), what="the head")
        yield
    finally:
        engine.stop()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _is_open(address, port):
    with socket.socket() as link:
        return link.connect_ex((address, port)) == 0


ENGINES = {"fork": fork}
if find_spec("distributed"):
    ENGINES["dask"] = dask
if find_spec("ray"):
    ENGINES["ray"] = ray
