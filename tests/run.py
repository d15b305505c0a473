"""Run the tests: ``python -m tests.run [options] [pytest arguments]``.

What is run on which database is planned in tests.legs. Much of the time is spent waiting, so all
databases are run at once where there is more than one processor, and without a choice of tests
each is run by several processes. With ``DATABASE_URL`` in the environment the PostgreSQL that it
names takes the place of those that are started here.

A test that fails is run once more at the end, alone (see tests.outcomes).
"""

import argparse
import compileall
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from . import clock, environment, legs, outcomes, packages, patience, results
from .browser import chromium
from .legs import Leg
from .outcomes import Outcome

# The last commit on which --all has passed, the day, and how many tests passed.
NOTED = ".ci/all-passed"


def main(argv=None):
    options, args = _parser().parse_known_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.nonsense:
        os.environ["ATP_TEST_NONSENSE"] = "yes"
        args += [] if legs.paths(args) else legs.WORDLESS_TESTS
    environment.folder()
    if options.at:
        options.quick, options.only = True, ["sqlite"]
        _extra.update(clock.beginning_at(options.at, environment.folder()))
    print(f"patience: {patience.measure()}", flush=True)
    _keep_bytecode()
    is_at_once = (os.cpu_count() or 1) > 1
    planned = legs.planned(
        args, only=options.only, everything=options.all, quick=options.quick, at_once=is_at_once
    )
    if not options.quick and any(leg.chooses(legs.BROWSER_TESTS) for leg in planned):
        try:
            print(chromium.announced(), flush=True)
        except chromium.NoBrowser as error:
            print(error, file=sys.stderr)
            return 1
    with_pooler = [leg for leg in planned if leg.chooses(legs.POOLER_TESTS)]
    if not options.quick and "postgres" in {leg.kind for leg in with_pooler}:
        _find_pooler()
    began = time.monotonic()
    if len(planned) > 1 and is_at_once:
        with ThreadPoolExecutor(len(planned)) as pool:
            found = list(pool.map(lambda leg: _run(leg, prefix=f"[{leg.name}]"), planned))
    else:
        found = [_run(leg) for leg in planned]
    seen = _second_look(_together(planned, found), args)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} of processor")
    status = outcomes.report(seen)
    if status == 0 and options.all and not (args or options.only):
        _note_all(seen)
    return status


def _note_all(seen):
    """Write which commit has passed ``--all``; the developer commits that file."""
    if _git("status", "--porcelain"):
        print(f"{NOTED} is left as it is: there are changes that are not committed.")
        return
    passed = sum(outcome.counts()[0] for _, outcome in seen)
    day = datetime.now(UTC).date()
    (environment.ROOT / NOTED).write_text(f"{_git('rev-parse', 'HEAD')} {day} {passed}\n")
    print(f"{NOTED} says so: commit it.")


def _git(*words):
    command = ["git", *words]
    found = subprocess.run(
        command, cwd=environment.ROOT, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def _keep_bytecode():
    """Compile once what each of the many processes of this run would compile."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in ("atp", "tests"):
        # Tests are compiled by pytest, with its own assertions (see tests.selection.Sharing).
        of_pytest = re.compile(r"/test_\w+\.py$")
        compileall.compile_dir(environment.ROOT / name, quiet=2, rx=of_pytest, workers=0)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=list(environment.KINDS),
        help="only on this database; may be given more than once",
    )
    parser.add_argument(
        "--quick", action="store_true", help="no test that starts a browser or another process"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="on each database also what need not be shown on two, and what takes long",
    )
    parser.add_argument(
        "--nonsense",
        action="store_true",
        help="with nonsense for the messages of the log: the store, the daemon and the verbs",
    )
    parser.add_argument(
        "--at",
        type=moment,
        metavar="MOMENT",
        help="begin each test at this moment, such as 2027-12-31T23:59:59.9, of UTC unless it "
        "has an offset; a run like --quick, on SQLite",
    )
    return parser


def moment(text):
    given = datetime.fromisoformat(text)
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _together(planned, found):
    """Return legs with their Outcomes; those that shared their tests are one."""
    groups = {}
    for leg, outcome in zip(planned, found, strict=True):
        first, so_far = groups.get(leg.group, (leg, Outcome()))
        groups[leg.group] = first, so_far + outcome
    return list(groups.values())


def _second_look(pairs, args):
    """Run what failed once more, alone; return pairs of a leg's title and its Outcome."""
    failures = sum(len(outcome.failures) for _, outcome in pairs)
    is_looked_at = 0 < failures <= outcomes.MOST_LOOKED_AT
    seen = []
    for leg, outcome in pairs:
        failed = [result.id for result in outcome.failures if result.is_test]
        if failed and is_looked_at:
            outcome = outcome.looked_again(_run_again(leg, failed, args))
        seen.append((leg.title, outcome))
    return seen


def _run_again(leg, ids, args):
    """Return the Results of these tests of a leg, in a run of their own."""
    these = environment.folder() / f"{leg.name}.failed"
    these.write_text("\n".join(ids))
    files = sorted({each.partition("::")[0] for each in ids})
    rest = [arg for arg in args if arg not in legs.paths(args)]
    again = Leg(
        leg.kind,
        f"{leg.title}, second look",
        (f"--these={these}", *rest, *files),
        part=f"{leg.part}again",
    )
    return _run(again).results


def _find_pooler():
    """Install PgBouncer where there is none; its tests are skipped where that cannot be done."""
    if shutil.which("pgbouncer") is None:
        try:
            packages.install("pgbouncer")
        except packages.NotInstalled as error:
            print(f"No PgBouncer, so its tests are skipped. {error}", flush=True)


# What goes over the environment of each leg.
_extra: dict[str, str] = {}


def _run(leg, prefix=None):
    """Run one leg and return its Outcome; lines are marked with ``prefix`` if there is one."""
    command = [sys.executable, "-m", "pytest", f"--results={leg.results}", *leg.args]
    print(f"\n=== {leg.title}: {' '.join(command[1:])}", flush=True)
    began = time.monotonic()
    try:
        own = _environment(leg)
    except Exception as error:
        return Outcome(complaint=f"no database: {error!r}")
    if prefix is None:
        status = subprocess.run(command, env=own, cwd=environment.ROOT, check=False).returncode
    else:
        status = _prefixed(command, own, prefix, leg.nice)
    seconds = time.monotonic() - began
    return outcomes.of_leg(results.read(leg.results), status, seconds=seconds)


def _environment(leg):
    folder = environment.folder() / leg.name
    folder.mkdir()
    own = {**os.environ, **_extra, "ATP_TEST_DATABASE": leg.kind, "ATP_TEST_DIR": str(folder)}
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


if __name__ == "__main__":
    sys.exit(main())
