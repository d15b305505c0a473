"""How fast Instances are enqueued: in bulk, and one by one, each in a transaction of its own."""

from .core.report import timed

RUNS = 5


def add_arguments(add):
    add("--bulk", type=int, default=10_000, help="Instances in bulk (10000)")
    add("--single", type=int, default=500, help="Instances one by one (500)")


def run(options, report):
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
    found = {}
    for name, function, count in (
        ("enqueue_many", bulk, options.bulk),
        ("enqueue", single, options.single),
    ):
        rates = [count / timed(function) for _ in range(RUNS)]
        found[name] = report.rates(name, rates, unit="Instances/s")
    report.compare("enqueue", found["enqueue_many"] / found["enqueue"])
