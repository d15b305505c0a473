"""The benchmarks of today, on the code of today and on that of an earlier commit, in turn."""

import io
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .report import told

ROOT = Path(__file__).resolve().parents[2]
# What is measured. The benchmarks are those of today on both sides.
MEASURED = ("atp", "demo_project")
BENCHMARKS = "benchmarks"


class AgainstError(Exception):
    """A commit cannot be measured; the message says why."""


@dataclass(kw_only=True)
class Side:
    """Code that is measured, in a folder, and the documents that its runs have written."""

    name: str
    folder: Path
    documents: list = field(default_factory=list)

    def run(self, benchmark, arguments, directory):
        """Run a benchmark once, in a process of its own. Raises AgainstError."""
        file = directory / "figures.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", BENCHMARKS, benchmark, "--runs=1", f"--json={file}"]
        done = subprocess.run(
            [*command, *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        # It also ends with 1 where a limit is exceeded, and then there are figures.
        if not file.exists():
            why = (done.stderr or done.stdout).strip()[-2000:]
            raise AgainstError(f"{benchmark} cannot be run on {self.name}:\n{why}")
        self.documents += json.loads(file.read_text())

    def medians(self):
        """Return the median of each figure over its runs."""
        return {
            figure: statistics.median(document["median"][figure] for document in self.documents)
            for figure in self.documents[0]["median"]
        }

    def ratio(self, figure, earlier):
        """Return the median of a figure's ratios to an earlier side, run by run; None without any.

        The pace of a machine drifts, which two runs that follow each other share.
        """
        runs = zip(self.documents, earlier.documents, strict=True)
        pairs = [(now["median"][figure], then["median"].get(figure)) for now, then in runs]
        ratios = [value / before for value, before in pairs if before]
        return statistics.median(ratios) if ratios else None


@contextmanager
def checked_out(commit, directory):
    """Have the code of a commit in a folder, with the benchmarks of today; give its name and it.

    Raises AgainstError.
    """
    name = _git("log", "-1", "--format=%h", commit, "--").decode().strip()
    folder = directory / name
    archive = _git("archive", name, *MEASURED)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / BENCHMARKS, folder / BENCHMARKS, ignore=ignored)
    try:
        yield name, folder
    finally:
        shutil.rmtree(folder)


def compared(benchmark, arguments, runs, earlier, directory):
    """Run a benchmark on both sides in turn, print the figures and return the document.

    ``earlier`` is what :func:`checked_out` gives. Raises AgainstError.
    """
    name, folder = earlier
    now, then = Side(name="the code as it is", folder=ROOT), Side(name=name, folder=folder)
    sides = [now, then]
    for _ in range(runs):
        for side in sides:
            side.run(benchmark, arguments, directory)
        # They take turns to be first.
        sides.reverse()
    medians, earlier_medians = now.medians(), then.medians()
    print(f"\n{benchmark}\n{'=' * len(benchmark)}")
    print(f"{'':<56} {'now':>12} {name:>12} {'now / then':>12}")
    ratios = {}
    for figure, median in medians.items():
        ratio = now.ratio(figure, then)
        if ratio is not None:
            ratios[f"{figure}, at {name}"] = ratio
            before = earlier_medians[figure]
            print(f"{figure:<56} {told(median):>12} {told(before):>12} {ratio:>12.2f}")
    return now.documents[0] | {
        "settings": now.documents[0]["settings"] | {"runs": runs},
        "median": medians,
        "ratio": ratios,
        "earlier": {"commit": name, "median": earlier_medians},
    }


def _git(*args):
    done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, check=False)
    if done.returncode:
        raise AgainstError(f"git {' '.join(args)}: {done.stderr.decode().strip()}")
    return done.stdout
