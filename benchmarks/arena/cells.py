"""Run the arena's chaos and pressure cells and print their results: ``PYTHON cells.py HARNESS``.

Each cell is one run of run.py with one system, so that a system that ends with an error ends no
other. Rates, replicas and phases are those of the arena's own sweep; ``--scale`` shortens the
phases. See README.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The arena's sweep, too, ends a cell that takes longer, such as one whose worker does not stop.
MOST = 900


@dataclass(frozen=True)
class Cell:
    """A cell: its offered load in jobs a second, and its phases as pairs (type, seconds).

    ``stress`` are the phases between a baseline of 60 s and a recovery.
    """

    name: str
    rate: int
    stress: tuple[tuple[str, int], ...]
    recovery: int = 60
    replicas: int = 1
    workers: int = 32

    def phases(self, scale: float) -> list[str]:
        """Return the values of ``--phase``."""
        own = [("warmup", "warmup", 30), ("baseline", "clean", 60)]
        own += [(f"stress_{n}", type, seconds) for n, (type, seconds) in enumerate(self.stress)]
        own.append(("recovery", "clean", self.recovery))
        # A sample is of five seconds.
        return [f"{label}={type}:{max(15, round(s * scale))}s" for label, type, s in own]


KILL = (("kill-worker(instance=0)", 60), ("start-worker(instance=0)", 60))
CELLS = (
    Cell("postgres_restart", 600, (("postgres-restart", 60),)),
    Cell("pg_backend_kill", 600, (("pg-backend-kill(rate=2)", 60),)),
    Cell("pool_exhaustion", 600, (("pool-exhaustion(idle_conns=300)", 60),)),
    Cell("crash_recovery", 300, KILL, replicas=2),
    Cell("repeated_kills", 300, (("repeated-kill(instance=0,period=20s)", 120),), replicas=2),
    Cell("idle_in_tx", 800, (("idle-in-tx", 240),), recovery=180),
    Cell("sustained_high_load", 800, (("high-load", 240),), recovery=120),
    Cell("active_readers", 800, (("active-readers", 240),), recovery=120),
    Cell("event_burst", 1200, (("high-load", 300),), recovery=240, workers=64),
)


def run(cell: Cell, system: str, harness: Path, scale: float, log: Any) -> dict[str, Any] | None:
    """Run a cell; returns the system's part of its summary.json, or None if the run has failed."""
    results = harness / "results"
    before = set(results.iterdir())
    words = [f"--{name}={value}" for name, value in (
        ("systems", system), ("producer-rate", cell.rate), ("replicas", cell.replicas),
        ("worker-count", cell.workers),
    )]  # fmt: skip
    words += [f"--phase={phase}" for phase in cell.phases(scale)]
    try:
        subprocess.run(
            [sys.executable, HERE / "run.py", harness, "run", *words],
            stdout=log, stderr=subprocess.STDOUT, timeout=MOST, check=True,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    [made] = set(results.iterdir()) - before
    summary = json.loads((made / "summary.json").read_text())
    return dict(summary["systems"][system]["phases"])


def row(phases: dict[str, Any] | None) -> list[str]:
    """Return the columns of a result; see HEAD."""
    if phases is None:
        return ["did not end"]
    base = _median(phases, "baseline", "completion_rate")
    stress = [_median(phases, name, "completion_rate") for name in phases if "stress" in name]
    recovery = _median(phases, "recovery", "completion_rate")
    lost = phases.get("recovery", {}).get("jobs_lost")
    return [
        f"{base:.0f}",
        " ".join(f"{_share(rate, base)}" for rate in stress),
        _share(recovery, base),
        f"{_median(phases, 'baseline', 'claim_p99_ms'):.0f}",
        f"{_median(phases, 'recovery', 'claim_p99_ms'):.0f}",
        "" if lost is None else f"{lost:.0f}",
    ]


HEAD = "cell | system | jobs/s | stress | recovery | p99 before, ms | after | jobs lost"


def _median(phases: dict[str, Any], phase: str, metric: str) -> float:
    found = phases.get(phase, {}).get("metrics", {}).get(metric) or {}
    return float(found.get("median") or 0)


def _share(rate: float, base: float) -> str:
    return f"{rate / base:.0%}" if base else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("harness", type=Path)
    parser.add_argument("--systems", default="atp,procrastinate,absurd,pgboss")
    parser.add_argument("--cells", default=",".join(cell.name for cell in CELLS))
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    harness, wanted = given.harness.resolve(), given.cells.split(",")
    with tempfile.NamedTemporaryFile("w", prefix="arena-", suffix=".log", delete=False) as log:
        print(f"log: {log.name}\n{HEAD}", flush=True)
        for cell in (each for each in CELLS if each.name in wanted):
            for system in given.systems.split(","):
                columns = row(run(cell, system, harness, given.scale, log))
                print(" | ".join([cell.name, system, *columns]), flush=True)


if __name__ == "__main__":
    main()
