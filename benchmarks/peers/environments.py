"""A virtual environment for each peer, made when it is needed and kept."""

import sys
from pathlib import Path

from .commands import run

# Beside the code of the project, unless another folder is given.
DEFAULT = Path(__file__).resolve().parents[2] / ".peers"
_STAMP = "installed.txt"


def python(participant, folder):
    """Return the interpreter that has what a participant needs. Raises Failure."""
    if not participant.environment:
        return sys.executable
    path = Path(folder or DEFAULT).absolute() / participant.environment
    # What was asked for, by whom: the same again needs no installing.
    wanted = "\n".join([sys.version, *participant.requirements])
    stamp = path / _STAMP
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {participant.versions}", flush=True)
        _make(path, participant.requirements)
        stamp.write_text(wanted)
    return str(path / "bin" / "python")


def _make(path, requirements):
    python = str(path / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run("its environment cannot be made", sys.executable, "-m", "venv", "--clear", str(path))
    run("it cannot be installed", *pip, *requirements)
