"""Run the chaos suite: ``python -m tests.chaos [options]``.

Daemons work on a scratch database while they, their processes and the database are
hit as a schedule says, which follows from the seed. Afterwards every promise is
checked; the exit status is 1 if one was broken, and then the files are kept.
"""

import argparse
import base64
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.receiver import receiver

from . import schedule, server
from .sources import sources_of

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
# Of the receiver of webhooks: in a run nobody else knows its address.
SECRET = "whsec_" + base64.b64encode(b"of the chaos suite, 32 bytes now").decode()


def main(argv=None):
    """Run and return the exit status."""
    options = _parser().parse_args(argv)
    seed, minutes, actions = _plan(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="atp-chaos-", dir=options.folder))
    url, database = server.start(options.database, folder)
    is_kept = False
    with contextlib.ExitStack() as stack:
        given = {"folder": folder, "seed": seed, "minutes": minutes, "server": database}
        try:
            more = {}
            if options.hooks:
                given["receiver"] = stack.enter_context(receiver(SECRET))
                more = {"WEBHOOKS": targets(given["receiver"].url)}
            if options.tailers:
                given["sources"], known = stack.enter_context(sources_of(folder))
                os.environ["ATP_CHAOS_SOURCES"] = json.dumps(known)
            _set_up(options.database, url, folder, more)
            is_kept = _run(options, given, actions)
        finally:
            if database is not None:
                database.stop()
            if is_kept:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                print(f"logs of the daemons, record and database are kept in {folder}")
    print("every promise was kept" if is_kept else f"PROMISES WERE BROKEN: seed {seed}")
    return 0 if is_kept else 1


def targets(url):
    """Return the setting WEBHOOKS of a run: a target that is told of every end."""
    target = {"url": url, "secret": SECRET, "allow_http": True, "on": ["chaos.hooked"]}
    return {"receiver": target}


def _run(options, given, actions):
    """Do what the options say; returns whether every promise was kept."""
    from .graphs import Graphs
    from .hooks import Hooks
    from .run import Run
    from .slots import Slots
    from .steps import Steps
    from .tailers import Tailers

    given["tell"] = _tell
    if options.schedules:
        return Slots(**given).run()
    if options.steps:
        del given["minutes"]
        return Steps(**given, kills=options.steps).run()
    if options.tailers:
        del given["minutes"]
        return Tailers(**given, kills=options.tailers).run()
    if options.graphs:
        return Graphs(**given, actions=actions).run()
    if options.hooks:
        return Hooks(**given, actions=actions).run()
    is_drawn = not (options.schedule or options.short)
    return Run(**given, actions=actions, is_drawn=is_drawn).run()


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
    add("--schedules", action="store_true", help="periodic jobs, by daemons whose clocks differ")
    add("--steps", type=int, metavar="KILLS", help="steps of handlers, under so many kills")
    add("--tailers", type=int, metavar="KILLS", help="sources of tailers, under so many kills")
    add("--graphs", action="store_true", help="graphs of 50 nodes, 100 each minute")
    add("--hooks", action="store_true", help="hooks, and webhooks whose receiver is away at times")
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


def _set_up(kind, url, folder, more):
    """Let Django be the project of the tests, here and in every daemon, on this database."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ATP_TEST_DATABASE": kind,
        "ATP_TEST_DIR": str(folder),
        "ATP_TEST_SETTINGS": json.dumps(SETTINGS | more),
        "DATABASE_URL": url,
    }
    import django

    django.setup()


if __name__ == "__main__":
    sys.exit(main())
