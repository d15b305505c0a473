"""What ``max_waiting`` costs an enqueue: Types that limit what waits, beside one that does not.

Clients enqueue one by one, in turn into a Type without limits, and into the same with a
``max_waiting`` that is far from being reached. With it, it should be 0.9 as quick at least.
"""

from .core import clients

LEAST = 0.9
MANY = 1_000_000


def add_arguments(add):
    add("--bounded", type=int, default=4_000, help="Instances of a run, with a limit and without")


def run(options, report):
    from atp import queue

    from .tasks import other

    queue.register(other)
    for count in (1, 8):
        found = {None: [], MANY: []}
        for _ in range(options.runs):
            for most, rates in found.items():
                queue.limit(other.identifier, max_waiting=most)
                rates.append(clients.rate(count, options.bounded, _prepare))
        named = clients.named(count)
        plain = report.rates(f"enqueue, {named}", found[None])
        ratio = report.rates(f"enqueue, max_waiting, {named}", found[MANY]) / plain
        report.compare("no limit", ratio, figure=f"enqueue, max_waiting, {named}")
        if ratio < LEAST:
            report.exceeded.append(f"with max_waiting it is {ratio:.2f} of no limit, not {LEAST}")


def _prepare():
    from .tasks import other

    return lambda number: other.enqueue(number=number)
