"""Prepares a run: an interpreter, its packages, and Django's source distribution."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
INSTALLED = {
    "6.1": ["Django>=6.1,<6.2"],
    "6.0": ["Django>=6.0,<6.1"],
    "backport": ["Django>=5.2,<5.3", "django-tasks>=0.12"],
}
# The source distribution whose tests are run: of the backport there are none.
SOURCE = {"6.1": "6.1", "6.0": "6.0", "backport": "6.1"}
MINIMUM = (3, 12)
# What a project on SQLite adds to its settings, as docs/settings.md says.
SQLITE = """
DATABASES["default"]["OPTIONS"] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL;",
}
"""


def prepare(version):
    """Return the interpreter of a virtual environment, and the folder of Django's tests."""
    folder = ROOT / ".conformance" / version
    python = make_environment(folder / "venv", [*INSTALLED[version], "-e", str(ROOT)])
    return python, _tests(python, folder / "source", SOURCE[version])


def make_environment(folder, packages, *options, base=None):
    """Create a virtual environment with these packages unless it exists; return its Python.

    If several processes ask for it at once, one creates it, and the others wait. ``base`` is the
    Python that creates it, and ``options`` are those of venv.
    """
    python, done = folder / "bin" / "python", folder / "installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != "\n".join(packages):
            print(f"Installing {' '.join(packages)} into {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            run(base or interpreter(), "-m", "venv", *options, folder)
            run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
            done.write_text("\n".join(packages))
    return python


def run(*command, **options):
    """Run a command. Raises CalledProcessError."""
    return subprocess.run([str(part) for part in command], check=True, **options)


def free_port():
    """Return a port that nobody has taken."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def interpreter():
    """Return a Python for Django 6: the current one, one on the PATH, or one from pyenv."""
    if sys.version_info >= MINIMUM:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in ("3.13", "3.12"):
        found = [shutil.which(f"python{name}"), *sorted(pyenv.glob(f"{name}.*/bin/python"))]
        for path in filter(None, found):
            # One of pyenv's may be there, and say that no version is chosen.
            if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                return path
    raise SystemExit("Django 6 takes Python 3.12 or later, and there is none.")


def _tests(python, folder, version):
    """Return the folder ``tests`` of Django's source distribution, downloaded if missing."""
    if not folder.exists():
        print(f"Fetching the source of Django {version}", flush=True)
        fetched = folder.with_name("fetched")
        # Of a source distribution pip asks for its metadata, which builds it.
        run(
            *(python, "-m", "pip", "download", "-q", "--disable-pip-version-check"),
            *("--no-binary", ":all:", "--no-deps", "--dest", fetched, f"Django=={version}.*"),
        )
        [archive] = fetched.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder.with_name("unpacked"), filter="data")
        [unpacked] = folder.with_name("unpacked").iterdir()
        unpacked.rename(folder)
    return folder / "tests"
