"""Run the arena with ATP in it, and without Docker: ``PYTHON run.py HARNESS ARGUMENTS…``.

``HARNESS`` is a clone of https://github.com/hardbyte/postgresql-job-queue-benchmarking, and PYTHON
an interpreter that has what its pyproject.toml names. The other arguments are those of its
``bench run``. ATP itself is run by ``ATP_PYTHON``. See README.md.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from glob import glob
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# As the harness has them; its server listens there alone.
PORT, USER = 15555, "bench"


class Server:
    """The arena's PostgreSQL, from the newest installation of Debian's packages."""

    def __init__(self, configuration: Path) -> None:
        self._bin = Path(
            max(glob("/usr/lib/postgresql/*/bin"), key=lambda each: int(each.split("/")[4]))
        )
        self._folder = Path(tempfile.mkdtemp(prefix="arena-"))
        self._configuration = configuration
        # PostgreSQL does not run as root.
        self._as = {"user": "postgres"} if os.geteuid() == 0 else {}

    def _run(self, *words: str) -> None:
        subprocess.run([self._bin / words[0], *words[1:]], check=True, cwd="/", **self._as)

    def make(self) -> None:
        data = self._folder / "data"
        if self._as:
            shutil.chown(self._folder, "postgres")
        self._run("initdb", "-D", str(data), "-U", USER, "-A", "trust", "--locale=C.UTF-8")
        with open(data / "postgresql.conf", "a") as file:
            file.write(self._configuration.read_text())
            file.write(f"\nport = {PORT}\nlisten_addresses = 'localhost'\n")
            file.write(f"unix_socket_directories = '{self._folder}'\n")

    def start(self) -> None:
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "fast", "-w", "stop")

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def python_of(folder: Path) -> str:
    """Return the interpreter of an adapter in Python, with what its pyproject.toml names."""
    venv = folder / ".venv"
    python = venv / "bin" / "python"
    if not python.exists():
        wanted = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"]
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return str(python)


def main() -> int:
    harness = Path(sys.argv.pop(1)).resolve()
    sys.path.insert(0, str(harness))
    from bench_harness import adapters, orchestrator

    def native(argv, **more):
        def launch(manifest, overrides):
            env = adapters._base_env(manifest, overrides)
            host = overrides.get("PRODUCER_RATE_CONTROL_FILE_HOST")
            if host:
                env["PRODUCER_RATE_CONTROL_FILE"] = host
            return adapters.LaunchSpec(argv=argv(), env={**os.environ, **env, **more})

        return launch

    def nothing(skip):
        pass

    own = os.environ.get("ATP_PYTHON", str(ROOT / ".venv/bin/python"))
    adapters.ADAPTERS["atp"] = adapters.AdapterEntry(
        bench_dir=HERE,
        builder=nothing,
        launcher=native(lambda: [own, "-m", "benchmarks.arena.main"], PYTHONPATH=str(ROOT)),
    )
    for name in ("procrastinate", "absurd", "pgque", "pgmq"):
        folder = harness / f"{name}-bench"
        adapters.ADAPTERS[name] = adapters.AdapterEntry(
            bench_dir=folder,
            builder=lambda skip, folder=folder: python_of(folder) and None,
            launcher=native(lambda folder=folder: [python_of(folder), str(folder / "main.py")]),
        )
    folder = harness / "pgboss-bench"
    adapters.ADAPTERS["pgboss"] = adapters.AdapterEntry(
        bench_dir=folder,
        builder=lambda skip: subprocess.run(["npm", "ci"], cwd=folder, check=True) and None,
        launcher=native(lambda: ["node", str(folder / "main.js")]),
    )
    server = Server(harness / "postgres.conf")
    server.make()
    orchestrator.start_postgres = lambda image: server.start()
    orchestrator.stop_postgres = lambda image: server.stop()
    orchestrator._compose_stop_postgres = lambda image: server.stop()
    orchestrator._compose_start_postgres = lambda image: server.start()
    try:
        return orchestrator.main() or 0
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
