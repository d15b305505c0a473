"""How fast Instances are enqueued: in bulk, and one by one, each in a transaction of its own.

Runs on a fresh test database beside the one that the demo's settings name, so
that no queue is left with what was enqueued here.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from demo_project.show.embedded import postgresql

RUNS = 5


def main(arguments=None):
    options = parsed(arguments)
    os.environ["DJANGO_SETTINGS_MODULE"] = "demo_project.settings"
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atp-bench-")))
        os.environ["DEMO_DIR"] = str(directory)
        if options.postgres:
            os.environ["DATABASE_URL"] = stack.enter_context(postgresql(directory))

        import django

        django.setup()
        from django.db import connection

        # Else SQLite's test database is in memory, where nothing is durable.
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(directory / "bench.sqlite3")
        own = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True)
        stack.callback(connection.creation.destroy_test_db, own, verbosity=0)
        describe(connection, options)
        measure(options)


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--bulk", type=int, default=10_000, help="Instances in bulk (10000)")
    parser.add_argument("--single", type=int, default=500, help="Instances one by one (500)")
    parser.add_argument("--postgres", action="store_true", help="on an embedded PostgreSQL")
    return parser.parse_args(arguments)


def describe(connection, options):
    """Print what the numbers depend on."""
    import django

    import atp

    shown = {
        "sqlite": ["journal_mode", "synchronous"],
        "postgresql": ["fsync", "synchronous_commit", "shared_buffers"],
    }
    asked = "PRAGMA" if connection.vendor == "sqlite" else "SHOW"
    kept = []
    with connection.cursor() as cursor:
        for name in shown.get(connection.vendor, ()):
            cursor.execute(f"{asked} {name}")
            kept.append(f"{name}={cursor.fetchone()[0]}")
    version = ".".join(str(part) for part in connection.get_database_version())
    driver = connection.Database
    print(f"atp {atp.__version__}, Django {django.__version__}, Python {sys.version.split()[0]}")
    print(f"{connection.vendor} {version} by {driver.__name__}: {', '.join(kept)}")
    print(f"{platform.machine()}, {os.cpu_count()} processors")
    print(f"bulk {options.bulk}, single {options.single}; medians of {RUNS} runs\n")


def measure(options):
    from atp import task_type

    @task_type("benchmarks.noop")
    def noop(context, *, number):
        """Do nothing."""

    def bulk():
        noop.enqueue_many({"number": number} for number in range(options.bulk))

    def single():
        for number in range(options.single):
            noop.enqueue(number=number)

    noop.enqueue(number=0)  # the Type's row, the connection, the imports
    for name, function, count in (
        ("enqueue_many", bulk, options.bulk),
        ("enqueue", single, options.single),
    ):
        rates = [count / timed(function) for _ in range(RUNS)]
        print(
            f"{name:<14} {statistics.median(rates):>10,.0f} Instances/s"
            f"   (from {min(rates):,.0f} to {max(rates):,.0f})",
            flush=True,
        )


def timed(function):
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
