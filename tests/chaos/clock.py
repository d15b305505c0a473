"""Wall clocks that are wrong: a small C library, compiled here and loaded before all others."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


def compiled(folder):
    """Compile the library, and return its path."""
    library = folder / "clock.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


def shifted(library, seconds):
    """Return the environment of a process whose wall clock is so many seconds ahead."""
    return {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(seconds)}
