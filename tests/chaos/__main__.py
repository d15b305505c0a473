"""Run the chaos suite: ``python -m tests.chaos [options]``.

Daemons work on a scratch database while they, their processes and the database are
hit as a schedule says, which follows from the seed. Afterwards every promise is
checked; the exit status is 1 if one was broken, and then the files are kept.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import schedule, server

# Short, so that leases run out often. Between the kill limit and the end of the lease
# a supervisor may be stopped; no schedule stops one for longer than half of that.
SETTINGS = {
    "LEASE": 8.0,
    "KILL_AFTER": 5.0,
    "STATEMENT_TIMEOUT": 3.0,
    "RENEW_EVERY": 1.0,
    "POLL_EVERY": 0.2,
    "SWEEP_EVERY": 0.5,
    "BACKOFF": 0.1,
    "BACKOFF_MAX": 1.0,
    "RELEASE_GRACE": 1.0,
    "CANCEL_GRACE": 1.0,
}
SHORT = 12 / 60


def main(argv=None):
    """Run and return the exit status."""
    options = _parser().parse_args(argv)
    seed, minutes, actions = _plan(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="atp-chaos-", dir=options.folder))
    url, database = server.start(options.database, folder)
    is_kept = False
    try:
        _set_up(options.database, url, folder)
        from .run import Run

        is_kept = Run(
            folder=folder,
            seed=seed,
            minutes=minutes,
            actions=actions,
            is_drawn=not (options.schedule or options.short),
            server=database,
            tell=_tell,
        ).run()
    finally:
        if database is not None:
            database.stop()
        if is_kept:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs of the daemons, record and database are kept in {folder}")
    print("every promise was kept" if is_kept else f"PROMISES WERE BROKEN: seed {seed}")
    return 0 if is_kept else 1


def _tell(line):
    """Print a line; in one write, since threads do."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="for how long things are broken (%(default)g)")
    add("--seed", help="what the schedule and the tasks follow from; default: a random one")
    add("--database", choices=["postgres", "sqlite"], default="postgres")
    add("--schedule", type=Path, help="replay a schedule that a run has written")
    add("--short", action="store_true", help="a fixed schedule of some seconds")
    add("--folder", type=Path, help="where the files of the run are made")
    return parser


def _plan(options):
    """Return seed, minutes and Actions."""
    if options.schedule:
        return schedule.load(options.schedule)
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    has_server = options.database != "sqlite"
    if options.short:
        return seed, SHORT, schedule.short(has_server=has_server)
    return seed, options.minutes, schedule.drawn(seed, options.minutes, has_server=has_server)


def _set_up(kind, url, folder):
    """Let Django be the project of the tests, here and in every daemon, on this database."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ATP_TEST_DATABASE": kind,
        "ATP_TEST_DIR": str(folder),
        "ATP_TEST_SETTINGS": json.dumps(SETTINGS),
        "DATABASE_URL": url,
    }
    import django

    django.setup()


if __name__ == "__main__":
    sys.exit(main())
