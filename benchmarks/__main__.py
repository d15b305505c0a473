"""Run benchmarks: ``python -m benchmarks [NAME …] [options]``.

Each runs on a fresh test database beside the one that it is given, so that no
queue is left with what was put into it.
"""

import argparse
import importlib
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from .core.database import KINDS, ChoiceError, fresh_database, server
from .core.report import Report, written

NAMES = ("enqueue", "lists")


def main(arguments=None):
    """Run what is named and return the exit status: 1 if a limit is exceeded."""
    benchmarks = {name: importlib.import_module(f"{__package__}.{name}") for name in NAMES}
    options = parsed(benchmarks, arguments)
    reports = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atp-bench-")))
        try:
            stack.enter_context(server(directory, options.database))
        except ChoiceError as error:
            print(error, file=sys.stderr)
            return 2
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "demo_project.settings",
            "DEMO_DIR": str(directory),
            "DEBUG": "False",
        }

        import django

        django.setup()

        for name in options.names or NAMES:
            with fresh_database(directory) as connection:
                report = Report(name, connection, own_options(benchmarks[name], options))
                report.begin()
                benchmarks[name].run(options, report)
                reports.append(report)
    if options.json:
        written(reports, options.json)
    for report in reports:
        report.conclude()
    return 1 if any(report.exceeded for report in reports) else 0


def parsed(benchmarks, arguments):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures how fast ATP is, on a fresh database that is removed afterwards.",
        epilog="DATABASE_URL names a server to use instead of starting one.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all if none")
    parser.add_argument(
        "--database", choices=KINDS, help="PostgreSQL if neither this nor DATABASE_URL says"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to it too")
    for name, benchmark in benchmarks.items():
        group = parser.add_argument_group(name, benchmark.__doc__.split("\n\n")[0])
        benchmark.add_arguments(group.add_argument)
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in benchmarks:
            parser.error(f"there is no benchmark {name!r}: choose from {', '.join(NAMES)}")
    return options


def own_options(benchmark, options):
    """Return the options that this benchmark has, by name."""
    names = []
    benchmark.add_arguments(lambda flag, **_: names.append(flag.lstrip("-").replace("-", "_")))
    return {name: getattr(options, name) for name in names}


if __name__ == "__main__":
    sys.exit(main())
