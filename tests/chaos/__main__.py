"""Run the chaos suite: ``python -m tests.chaos [options]``.

Daemons work on a scratch database. A schedule, which follows from a seed, hits the daemons, their
processes and the database. Afterwards every promise is checked. If one was broken, the exit
status is 1 and the files are kept.
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
from tests.tailers import servers

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
# Of the receiver of webhooks: in a run nobody else knows its address.
SECRET = "whsec_" + base64.b64encode(b"of the chaos suite, 32 bytes now").decode()


def main(argv=None):
    """Run the suite and return the exit status."""
    options = _parser().parse_args(argv)
    seed, minutes, actions = _plan(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="atp-chaos-"))
    url, database = server.start(options.database, folder)
    is_kept = False
    with contextlib.ExitStack() as stack:
        try:
            outside, more = None, {}
            if options.hooks:
                outside = stack.enter_context(receiver(SECRET))
                target = {"url": outside.url, "secret": SECRET, "allow_http": True}
                # It is told of every end.
                more = {"WEBHOOKS": {"receiver": target | {"on": ["chaos.hooked"]}}}
            if options.tailers:
                outside = stack.enter_context(_sources(folder))
            _set_up(options.database, url, folder, more)
            is_kept = _scenario(options)(
                folder=folder,
                seed=seed,
                server=database,
                tell=_tell,
                minutes=minutes,
                actions=actions,
                is_drawn=not options.short,
                kills=options.steps or options.tailers or 0,
                outside=outside,
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


@contextlib.contextmanager
def _sources(folder):
    """Start the servers that tailers read, and pass their addresses to the daemons."""
    drops = folder / "drops"
    drops.mkdir()
    with servers.valkey() as redis:
        kafka = servers.Broker()
        kafka.make("chaos")
        known = {"folder": str(drops), "redis": redis.url, "kafka": kafka.servers}
        os.environ["ATP_CHAOS_SOURCES"] = json.dumps(known)
        yield {"folder": drops, "redis": redis, "kafka": kafka}


def _scenario(options):
    """Return the Scenario named in the options."""
    from . import graphs, hooks, run, slots, steps, tailers

    wanted = (
        (options.schedules, slots.Slots),
        (options.steps, steps.Steps),
        (options.tailers, tailers.Tailers),
        (options.graphs, graphs.Graphs),
        (options.hooks, hooks.Hooks),
        (True, run.Run),
    )
    return next(scenario for is_wanted, scenario in wanted if is_wanted)


def _tell(line):
    """Print a line in a single write, because several threads print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="for how long things are broken (%(default)g)")
    add("--seed", help="what the schedule and the tasks follow from; default: a random one")
    add("--database", choices=["postgres", "sqlite"], default="postgres")
    add("--short", action="store_true", help="a fixed schedule of some seconds")
    add("--schedules", action="store_true", help="periodic jobs, by daemons whose clocks differ")
    add("--steps", type=int, metavar="KILLS", help="steps of handlers, under so many kills")
    add("--tailers", type=int, metavar="KILLS", help="sources of tailers, under so many kills")
    add("--graphs", action="store_true", help="graphs of 50 nodes, 100 each minute")
    add("--hooks", action="store_true", help="hooks, and webhooks whose receiver is away at times")
    return parser


def _plan(options):
    """Return the seed, the minutes and the Actions."""
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    has_server = options.database != "sqlite"
    if options.short:
        return seed, SHORT, schedule.short(has_server=has_server)
    return seed, options.minutes, schedule.drawn(seed, options.minutes, has_server=has_server)


def _set_up(kind, url, folder, more):
    """Set up Django with the test project and this database, here and for all daemons."""
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
