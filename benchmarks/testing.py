"""How long a test takes to drain tasks that do nothing: :mod:`atp.testing`, on SQLite in memory.

It is a process of its own, inside a transaction that is rolled back, as a TestCase has one.
Beside the time that passes it tells that of the processor, which other processes do not change.
"""

import json
import os
import subprocess
import sys
import time


def add_arguments(add):
    add("--drained", type=int, default=1_000, help="tasks that are drained")


def run(options, report):
    told = [_measured(options.drained) for _ in range(options.runs)]
    passed, worked = zip(*told, strict=True)
    report.row(f"drain {options.drained:,} no-ops", passed, unit="s")
    report.row("of that, processor", worked, unit="s")


def _measured(count):
    """Return the seconds that passed, and those of the processor, in a process of its own."""
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(count)],
        env=own | {"BENCHMARK_DATABASE": ":memory:"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def _drain(count):
    import django

    django.setup()

    from django.core.management import call_command
    from django.db import transaction

    from atp.testing import Kit

    from .tasks import NOOPS

    call_command("migrate", verbosity=0)
    with transaction.atomic():
        NOOPS[0].enqueue_many([{"number": number} for number in range(count)])
        began, worked = time.perf_counter(), time.process_time()
        runs = Kit().drain(most=count)
        found = time.perf_counter() - began, time.process_time() - worked
        assert [run.state for run in runs] == ["FINISHED"] * count
        transaction.set_rollback(True)
    return found


if __name__ == "__main__":
    print(json.dumps(_drain(int(sys.argv[1]))))
