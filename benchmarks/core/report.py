"""What a benchmark found: printed as it comes, and kept for a file."""

import json
import math
import os
import platform
import statistics
import sys
import time

# What a database's figures depend on, by vendor: how to ask, and for what.
_ASKED = {
    "sqlite": ("PRAGMA", ["journal_mode", "synchronous"]),
    "postgresql": ("SHOW", ["fsync", "synchronous_commit", "shared_buffers", "work_mem"]),
}


class Report:
    """The figures of one benchmark; ``exceeded`` are sentences, one for each limit that was."""

    def __init__(self, benchmark, connection, options):
        self.benchmark = benchmark
        self.database = connection.vendor
        self.settings = _settings(connection) | options
        self.versions = _versions(connection)
        self.median = {}
        self.ratio = {}
        self.more = {}
        self.exceeded = []

    def begin(self):
        """Print what the figures depend on."""
        print(f"\n{self.benchmark}\n{'=' * len(self.benchmark)}")
        print(", ".join(f"{name} {version}" for name, version in self.versions.items()))
        print(", ".join(f"{name}={value}" for name, value in self.settings.items()))
        print(f"{platform.machine()}, {os.cpu_count()} processors\n", flush=True)

    def add(self, figure, values, *, unit, **more):
        """Keep the median of ``values``, and figures of other kinds, and return the median."""
        name = f"{figure}, {unit}"
        self.median[name] = statistics.median(values)
        for kind, value in more.items():
            self.more.setdefault(kind, {})[name] = value
        return self.median[name]

    def rates(self, figure, rates, *, unit):
        """Keep and print how many a second."""
        median = self.add(figure, rates, unit=unit)
        print(
            f"{figure:<14} {median:>10,.0f} {unit}   (from {min(rates):,.0f} to {max(rates):,.0f})",
            flush=True,
        )
        return median

    def compare(self, divisor, value):
        """Keep and print a ratio, by what it was divided by."""
        self.ratio[divisor] = value
        print(f"{value:.2f} times {divisor}", flush=True)

    def conclude(self):
        """Print which limits were exceeded."""
        for sentence in self.exceeded:
            print(f"{self.benchmark}: {sentence}", file=sys.stderr)

    def document(self):
        """The figures as plain values."""
        return {
            "benchmark": self.benchmark,
            "database": self.database,
            "settings": self.settings,
            "versions": self.versions,
            "median": self.median,
            "ratio": self.ratio,
            **self.more,
        }


def written(reports, file):
    """Write the reports to a file, as a list of objects."""
    file.write_text(json.dumps([report.document() for report in reports], indent=2) + "\n")


def timed(function, *args):
    """Return how many seconds a call takes."""
    began = time.perf_counter()
    function(*args)
    return time.perf_counter() - began


def percentile(values, share):
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _settings(connection):
    asked, names = _ASKED.get(connection.vendor, ("", ()))
    found = {}
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"{asked} {name}")
            found[name] = str(cursor.fetchone()[0])
    return found


def _versions(connection):
    import django

    import atp

    found = {
        "atp": atp.__version__,
        "Django": django.__version__,
        "Python": platform.python_version(),
        connection.vendor: ".".join(map(str, connection.get_database_version())),
    }
    if connection.vendor == "postgresql":
        driver = connection.Database
        found[driver.__name__] = driver.__version__.partition(" ")[0]
    return found
