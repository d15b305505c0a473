"""Run benchmarks: ``python -m benchmarks [NAME …] [options]``.

Each runs on a database of its own, which is made beside the one that it is given
and removed afterwards, so that no queue is left with what was put into it.
"""

import importlib
import json
import os
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import atp

from .core import against
from .core.batch import BatchError
from .core.clients import ClientError
from .core.daemons import DaemonError
from .core.database import ChoiceError, clone, fresh_database, server, used
from .core.latency import LatencyError
from .core.options import as_arguments, own, parsed
from .core.report import Report, written
from .core.web import ServerError

NAMES = (
    *("floor", "drain", "enqueue", "bulk", "latency", "growth", "horizon", "memory", "idle"),
    *("lists", "orm"),
)
# What takes long, or installs much.
IF_NAMED = (
    "executors",
    "failures",
    "testing",
    "graphs",
    "shares",
    "limits",
    "overload",
    "waiting",
    "fleet",
    "slots",
    "downstream",
    "soak",
    "peers",
    "explain",
    "metrics",
    "pages",
    "tailers",
    "loops",
)
ROOT = Path(__file__).resolve().parents[1]
# What cannot be asked for, and what should have gone well but did not.
REFUSED, BROKEN = 2, 3


def main(arguments=None):
    """Run what is named and return the exit status: 1 if a limit is exceeded."""
    names = NAMES + IF_NAMED
    benchmarks = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    options = parsed(benchmarks, arguments, always=NAMES)
    chosen = {name: benchmarks[name] for name in options.names}
    try:
        with tempfile.TemporaryDirectory(prefix="atp-bench-") as directory:
            run = _run_against if options.against else _run
            return run(chosen, options, Path(directory))
    except (ChoiceError, against.AgainstError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    except (BatchError, ClientError, DaemonError, LatencyError, ServerError) as error:
        print(error, file=sys.stderr)
        return BROKEN


def _run(benchmarks, options, directory):
    reports = []
    with server(directory, options.database):
        _set_up(benchmarks, options, directory)
        with fresh_database(directory) as connection:
            for name, benchmark in benchmarks.items():
                with clone(connection, name) as own_database, used(connection, own_database):
                    reports.append(_reported(name, benchmark, options, directory))
    if options.json:
        written([report.document() for report in reports], options.json)
    for report in reports:
        report.conclude()
    return 1 if any(report.exceeded for report in reports) else 0


def _reported(name, benchmark, options, directory):
    """Run a benchmark on the database that is used, and return its report."""
    from django.db import connection

    given = {"runs": options.runs, **own(benchmark, options)}
    report = Report(name, connection, given)
    report.begin()
    benchmark.run(Namespace(directory=directory, **given), report)
    return report


def _set_up(benchmarks, options, directory):
    """Let Django be the project of the benchmarks, here and in what is started from here."""
    # Another installation of it may be on the path.
    assert Path(atp.__file__).is_relative_to(ROOT), f"{atp.__file__} is not in {ROOT}"
    given = [own(benchmark, options) for benchmark in benchmarks.values()]
    types = max(each.get("types", 1) for each in given)
    concurrency = max(each.get("concurrency", 0) for each in given)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "DEMO_DIR": str(directory),
        "DEBUG": "False",
        "BENCHMARK_ATP": json.dumps(dict(options.set)),
        "BENCHMARK_TYPES": str(types),
        "BENCHMARK_CONCURRENCY": str(concurrency),
    }

    import django

    django.setup()


def _run_against(benchmarks, options, directory):
    """Run each beside the same on an earlier commit; the limits are not looked at."""
    with (
        against.checked_out(options.against, directory) as earlier,
        server(directory, options.database),
    ):
        documents = [
            against.compared(
                name, as_arguments(benchmark, options), options.runs, earlier, directory
            )
            for name, benchmark in benchmarks.items()
        ]
    if options.json:
        written(documents, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
