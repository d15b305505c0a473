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

    def row(self, figure, values, *, unit):
        """Keep the median of what the runs gave, print it with the lowest and the highest."""
        if not self.median:
            print(f"{'':<40} {'median':>10} {'lowest':>10} {'highest':>10}")
        median = self.add(figure, values, unit=unit)
        columns = " ".join(f"{told(value):>10}" for value in (median, min(values), max(values)))
        print(f"{figure:<40} {columns}  {unit}", flush=True)
        return median

    def rates(self, figure, rates):
        """Keep and print how many a second."""
        return self.row(figure, rates, unit="/s")

    def shares(self, figure, shares):
        """Keep and print parts of a whole, in percent."""
        return self.row(figure, [100 * share for share in shares], unit="%")

    def latencies(self, figure, runs):
        """Keep and print percentiles, of what was taken in each run; return their medians."""
        percentiles = [run.percentiles() for run in runs]
        return {
            name: self.row(f"{figure}, {name}", [found[name] for found in percentiles], unit="ms")
            for name in percentiles[0]
        }

    def compare(self, divisor, value, *, figure=""):
        """Keep and print a ratio, by what it was divided by; with the figure if there are more."""
        name = f"{figure} / {divisor}" if figure else divisor
        self.ratio[name] = value
        print(f"{value:.2f} times {divisor}" if not figure else f"{name}: {value:.2f}", flush=True)

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


def told(value):
    """Return a figure as text, with three digits that mean something at least."""
    if not value or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def written(documents, file):
    """Write what benchmarks have found to a file, as a list of objects."""
    file.write_text(json.dumps(documents, indent=2) + "\n")


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
