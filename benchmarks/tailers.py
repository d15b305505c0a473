"""How many records a second tailers enqueue, in turn with as many enqueues in calls of one batch.

Each source is filled first, and then read in this process. That is what a worker does, but for the
fence of its transactions, a statement a batch. A look at a source that has nothing new is timed
apart, with the cursors that it has by then.
"""

import time
from pathlib import Path

from .core.report import timed

BATCH = 500


def add_arguments(add):
    add("--records", type=int, default=10_000, help="records of each source")


def run(options, report):
    from atp import queue
    from atp.testing import MemoryContext

    from .tasks import other

    found = {name: [] for name in ("enqueue_many", "table", "directory")}
    looks = []
    tailers = _declared(options.directory)
    queue.register_all()
    for number in range(options.runs):
        first = number * options.records
        numbers = range(first, first + options.records)
        found["enqueue_many"].append(options.records / timed(_enqueue, other, numbers))
        for name, (tailer, fill) in tailers.items():
            fill(numbers)
            context = MemoryContext(tailer.type)
            found[name].append(options.records / timed(_read, tailer, context, options.records))
            context.close()
        tailer, _ = tailers["directory"]
        context = MemoryContext(tailer.type)
        looks.append(1000 * timed(_read, tailer, context, 0))
        context.close()
    rates = {name: report.rates(name, each) for name, each in found.items()}
    for name in tailers:
        report.compare("enqueue_many", rates[name] / rates["enqueue_many"], figure=name)
    report.row("a look at a directory with nothing new", looks, unit="ms")


def _declared(directory):
    """Return the tailers by name, each with the function that fills its source."""
    from atp import tailer
    from atp.sources import Directory, Table

    from .models import Counter
    from .tasks import other

    drops = Path(directory) / "drops"
    drops.mkdir()

    def of_row(record):
        return other.call(number=record.row.value)

    def of_file(record):
        return other.call(number=int(record.path.name))

    given = {"every": None, "batch": BATCH}
    table = tailer("benchmarks.rows", Table(Counter), **given)(of_row)
    files = tailer("benchmarks.files", Directory(drops, quiet=0), **given)(of_file)

    def fill_table(numbers):
        Counter.objects.bulk_create(Counter(value=number) for number in numbers)

    def fill_directory(numbers):
        for number in numbers:
            (drops / str(number)).touch()

    return {"table": (table, fill_table), "directory": (files, fill_directory)}


def _enqueue(type, numbers):
    for first in range(0, len(numbers), BATCH):
        type.enqueue_many({"number": number} for number in numbers[first : first + BATCH])


def _read(tailer, context, wanted):
    from atp.tailers.tailer import Reading

    until = time.monotonic() + 600
    settled = 0
    while True:
        settled += Reading(context, tailer).run()["records"]
        if settled >= wanted:
            return
        assert time.monotonic() < until, f"{settled} of {wanted} records were settled"
