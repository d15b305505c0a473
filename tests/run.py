"""Run the tests on every database: ``python -m tests.run [options] [pytest arguments]``.

The tests run on SQLite, on a PostgreSQL that is started here, and the store's contract
also on the oldest PostgreSQL that the wheel has. What need not be shown on two databases
is run on one (see tests.selection). Much of the time is spent waiting. So where there is
more than one processor, all databases are run at once, and without a choice of tests each
is run by several processes: the tests of the daemon, which wait most, by processes of
their own. With ``DATABASE_URL`` in the environment the PostgreSQL that it names takes the
place of both. The last line says how many passed and failed; the exit status is 1 if any
failed or none ran.
"""

import argparse
import compileall
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import environment, packages
from .browser import chromium

STORE_TESTS = "tests/store"
DAEMON_TESTS = "tests/daemon"
BROWSER_TESTS = "tests/browser"
# The tests of what must not depend on any sentence.
WORDLESS_TESTS = (
    *(STORE_TESTS, DAEMON_TESTS, "tests/test_changing.py", "tests/test_commanding.py"),
    *("tests/test_controls.py", "tests/test_enqueue.py", "tests/test_queue.py"),
    *("tests/test_registry.py", "tests/test_removing.py", "tests/test_steering.py"),
)
POOLER_TESTS = "tests/daemon/test_pgbouncer.py"
# Options of pytest whose value is a path, but not one of what is to be run.
TAKE_A_PATH = {"--ignore", "--deselect", "--confcutdir", "--rootdir", "--basetemp", "-c"}
# How many processes run the tests of a leg, where it is run beside others.
WORKERS = {"sqlite": 1, "sqlite-daemon": 2, "postgres": 2, "postgres-daemon": 3, "postgres16": 1}
QUICK_WORKERS = 2
# What computes yields to what waits for a moment, and is to see it.
NICE = 5
# Of what failed, how much is said again at the end.
MOST_TOLD = 5
MESSAGE_LINES = 4
WHY = 120
LAST_LINES = 6


@dataclass(frozen=True)
class Leg:
    """One run of pytest on one database.

    ``part`` says which, where there are more of a kind, and ``number`` which of those that
    share the tests. ``nice`` says how much it yields to the others.
    """

    kind: str
    title: str
    args: tuple[str, ...]
    part: str = ""
    number: int = 0
    nice: int = 0

    @property
    def group(self):
        return f"{self.kind}-{self.part}" if self.part else self.kind

    @property
    def name(self):
        return f"{self.group}-{self.number}" if self.number else self.group


@dataclass
class Outcome:
    """What a leg came to."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    complaint: str = ""
    failures: list[str] = field(default_factory=list)

    def __add__(self, other):
        """Return the outcome of both, which shared their tests."""
        return Outcome(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            ", ".join(filter(None, [self.complaint, other.complaint])),
            self.failures + other.failures,
        )

    def __str__(self):
        parts = [f"{self.passed} passed"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        return ", ".join(parts) + (f" ({self.complaint})" if self.complaint else "")


def main(argv=None):
    options, args = _parser().parse_known_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.nonsense:
        os.environ["ATP_TEST_NONSENSE"] = "yes"
        args += [] if _paths(args) else WORDLESS_TESTS
    environment.folder()
    _keep_bytecode()
    is_at_once = not options.serial and (os.cpu_count() or 1) > 1
    legs = _legs(options.only, args, apart=is_at_once, quick=options.quick)
    if not options.everywhere:
        legs = _beside(legs)
    if is_at_once and not _paths(args) and not _is_named():
        legs = [worker for leg in legs for worker in _workers(leg, quick=options.quick)]
    if not options.quick and any(_needs_browser(leg) for leg in legs):
        try:
            print(chromium.announced(), flush=True)
        except chromium.NoBrowser as error:
            print(error, file=sys.stderr)
            return 1
    if not options.quick and any(_needs_pooler(leg) for leg in legs):
        _find_pooler()
    if len(legs) > 1 and is_at_once:
        outcomes = _all_at_once(legs)
    else:
        outcomes = [_run(leg) for leg in legs]
    return _report(*_together(legs, outcomes))


def _keep_bytecode():
    """Compile once what each of the many processes of this run would compile."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in ("atp", "tests"):
        compileall.compile_dir(environment.ROOT / name, quiet=2)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=list(environment.KINDS),
        help="only on this database; may be given more than once",
    )
    parser.add_argument(
        "--serial", action="store_true", help="one database after the other, which takes longer"
    )
    parser.add_argument(
        "--quick", action="store_true", help="no test that starts a browser or another process"
    )
    parser.add_argument(
        "--nonsense",
        action="store_true",
        help="with nonsense for the messages of the log: the store, the daemon and the verbs",
    )
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="on each database also what need not be shown on two",
    )
    return parser


def _legs(only, args, *, apart=False, quick=False):
    """Return what is to be run; ``apart`` says that the daemon's tests are by themselves.

    What is ``quick`` starts no processes, and no server either, unless it is asked for.
    """
    if quick:
        args, only = ["--quick", *args], only or ["sqlite"]
    paths = _paths(args)
    of_store = [path for path in paths if path.startswith(STORE_TESTS)]
    rest = [arg for arg in args if arg not in paths]
    legs = [
        Leg("sqlite", "SQLite", tuple(args)),
        Leg("postgres", "PostgreSQL", tuple(args)),
    ]
    named = _is_named()
    if apart and not paths and not named and not quick:
        legs = [part for leg in legs for part in _parts(leg)]
    if not named and not quick and (of_store or not paths):
        store_args = (*rest, *(of_store or [STORE_TESTS]))
        nice = NICE if apart and not paths else 0
        legs.append(Leg("postgres16", "PostgreSQL 16, store contract", store_args, nice=nice))
    return [leg for leg in legs if not only or leg.kind in only]


def _is_named():
    """Whether the environment names a PostgreSQL."""
    return os.environ.get("DATABASE_URL", "").startswith("postgres")


def _parts(leg):
    """Return a leg's tests of the daemon, and the others."""
    return [
        replace(leg, args=(*leg.args, "--ignore", DAEMON_TESTS), nice=NICE),
        replace(leg, title=f"{leg.title}, daemon", args=(*leg.args, DAEMON_TESTS), part="daemon"),
    ]


def _beside(legs):
    """Have each database leave to the other what need not be shown twice."""
    kinds = {leg.kind for leg in legs}
    if not {"sqlite", "postgres"} <= kinds:
        return legs
    others = {"sqlite": "postgres", "postgres": "sqlite", "postgres16": "sqlite"}
    return [replace(leg, args=(f"--beside={others[leg.kind]}", *leg.args)) for leg in legs]


def _workers(leg, *, quick=False):
    """Return the legs that share the tests of this one, each on a database of its own."""
    count = QUICK_WORKERS if quick else WORKERS[leg.group]
    if count == 1:
        return [leg]
    # With "=", as pytest would take a folder that is there for what is to be run.
    shared = f"--share={environment.folder() / leg.group}-taken"
    return [replace(leg, args=(shared, *leg.args), number=number) for number in range(1, count + 1)]


def _together(legs, outcomes):
    """Return legs and outcomes with those as one that shared their tests."""
    found = {}
    for leg, outcome in zip(legs, outcomes, strict=True):
        first, so_far = found.get(leg.group, (leg, Outcome()))
        found[leg.group] = first, so_far + outcome
    return [leg for leg, _ in found.values()], [outcome for _, outcome in found.values()]


def _paths(args):
    """Return the arguments that say what is to be run."""
    return [
        arg
        for before, arg in zip(["", *args], args, strict=False)
        if before not in TAKE_A_PATH and Path(arg.partition("::")[0]).exists()
    ]


def _needs_browser(leg):
    """Whether the tests in a browser are among those of the leg."""
    return _chooses(leg, environment.ROOT / BROWSER_TESTS)


def _chooses(leg, own):
    """Whether what lies there is among the tests of the leg."""
    chosen = [Path(path.partition("::")[0]).resolve() for path in _paths(leg.args)]
    return not chosen or any(
        path.is_relative_to(own) or own.is_relative_to(path) for path in chosen
    )


def _needs_pooler(leg):
    """Whether the tests behind PgBouncer are among those of the leg."""
    return leg.kind == "postgres" and _chooses(leg, environment.ROOT / POOLER_TESTS)


def _find_pooler():
    """Install PgBouncer where there is none; its tests are skipped where that cannot be done."""
    if shutil.which("pgbouncer") is None:
        try:
            packages.install("pgbouncer")
        except packages.NotInstalled as error:
            print(f"No PgBouncer, so its tests are skipped. {error}", flush=True)


def _run(leg, prefix=None):
    """Run one leg and return its Outcome; lines are marked with ``prefix`` if there is one."""
    report = environment.folder() / f"{leg.name}.xml"
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *leg.args]
    print(f"\n=== {leg.title}: {' '.join(command[1:])}", flush=True)
    try:
        own = _environment(leg)
    except Exception as error:
        return Outcome(failed=1, complaint=f"no database: {error!r}")
    if prefix is None:
        status = subprocess.run(command, env=own, cwd=environment.ROOT, check=False).returncode
    else:
        status = _prefixed(command, own, prefix, leg.nice)
    return _outcome(report, status)


def _environment(leg):
    folder = environment.folder() / leg.name
    folder.mkdir()
    own = {**os.environ, "ATP_TEST_DATABASE": leg.kind, "ATP_TEST_DIR": str(folder)}
    version = environment.KINDS[leg.kind]
    if version is not None and not own.get("DATABASE_URL", "").startswith("postgres"):
        own["DATABASE_URL"] = environment.start_postgres(version, leg.name).url()
    return own


def _prefixed(command, own, prefix, nice):
    with subprocess.Popen(
        ["nice", "-n", str(nice), *command],
        env=own,
        cwd=environment.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout:
            print(f"{prefix} {line}", end="", flush=True)
    return process.returncode


def _all_at_once(legs):
    outcomes = {}

    def run(leg):
        outcomes[leg] = _run(leg, prefix=f"[{leg.name}]")

    threads = [threading.Thread(target=run, args=(leg,)) for leg in legs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes[leg] for leg in legs]


def _outcome(report, status):
    """Read what pytest wrote. Status 5 means that nothing was selected."""
    if not report.exists():
        return Outcome(failed=1, complaint=f"pytest ended with status {status} and no report")
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    failures = []
    for suite in ET.parse(report).getroot().iter("testsuite"):
        for name in counts:
            counts[name] += int(suite.get(name, 0))
        failures += [told for case in suite.iter("testcase") for told in _failures(case)]
    failed = counts["failures"] + counts["errors"]
    skipped = counts["skipped"]
    outcome = Outcome(counts["tests"] - failed - skipped, failed, skipped, failures=failures)
    if status not in (0, 1, 5) or (status == 1 and not failed):
        outcome.failed = outcome.failed or 1
        outcome.complaint = f"pytest ended with status {status}"
    return outcome


def _failures(case):
    """Return what is to be read of a test that failed, none if it passed."""
    name = "::".join(filter(None, [case.get("classname"), case.get("name")]))
    return [
        f"{name}\n" + textwrap.indent(_last_lines(found), "    ")
        for kind in ("failure", "error")
        for found in case.iter(kind)
    ]


def _last_lines(found):
    """Return what says why: the message, and the lines where it happened."""
    lines = (found.get("message") or "").splitlines()[:MESSAGE_LINES]
    return "\n".join([*lines, "…", *(found.text or "").splitlines()[-LAST_LINES:]])


def _report(legs, outcomes):
    """Print what failed and how many; it stands last, as a log is often cut at its end."""
    print()
    for leg, outcome in zip(legs, outcomes, strict=True):
        for told in outcome.failures[:MOST_TOLD]:
            print(f"{leg.title}: FAILED {told}\n")
    # All by name where the reasons of the first may have been too long for what is kept.
    for leg, outcome in zip(legs, outcomes, strict=True):
        for told in outcome.failures:
            name, why = told.splitlines()[:2]
            print(f"{leg.title}: FAILED {name}: {why.strip()[:WHY]}")
    for leg, outcome in zip(legs, outcomes, strict=True):
        print(f"{leg.title}: {outcome}")
    passed, failed, skipped = (
        sum(getattr(outcome, name) for outcome in outcomes)
        for name in ("passed", "failed", "skipped")
    )
    if not passed and not failed:
        print("no test ran")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
