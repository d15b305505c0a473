"""A virtual environment for each peer, made when it is needed and kept."""

import shutil
import sys
from pathlib import Path

from .commands import run
from .failure import Failure

# Beside the code of the project, unless another folder is given.
DEFAULT = Path(__file__).resolve().parents[2] / ".peers"
_STAMP = "installed.txt"


def python(participant, folder):
    """Return the interpreter that has what a participant needs. Raises Failure."""
    if not participant.environment:
        return sys.executable
    path = Path(folder or DEFAULT).absolute() / participant.environment
    maker = _maker(participant.first_python)
    # What was asked for, by whom: the same again needs no installing.
    wanted = "\n".join([maker, sys.version, *participant.requirements])
    stamp = path / _STAMP
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {participant.versions}", flush=True)
        _make(maker, path, participant.requirements)
        stamp.write_text(wanted)
    return str(path / "bin" / "python")


def _maker(first):
    """Return the interpreter that makes an environment, of this version or later.

    Raises Failure.
    """
    if sys.version_info >= first:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(first[1], first[1] + 3)]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise Failure(f"it needs Python {'.'.join(map(str, first))}: no {names[0]} is on the PATH")
    return found


def _make(maker, path, requirements):
    python = str(path / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run("its environment cannot be made", maker, "-m", "venv", "--clear", str(path))
    run("it cannot be installed", *pip, *requirements)
