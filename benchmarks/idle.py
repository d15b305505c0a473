"""What an idle daemon does: statements that it sends a second, and its share of a processor.

The daemon has run some tasks before. Statements are counted in the server's log,
BEGIN and COMMIT among them: that of an embedded PostgreSQL, or of one that lets us
read it. The time that processors work is that of all processes of the daemon.
"""

import time

from .core import draining
from .core.statements import counted


def add_arguments(add):
    add("--seconds", type=int, default=30, help="length of a run")
    draining.add_arguments(add)
    add("--settle", type=int, default=5, help="seconds that it is left alone before")


def run(options, report):
    from .tasks import NOOPS

    load = draining.Load.of(options, NOOPS[:1])
    found = [once(load, options) for _ in range(options.runs)]
    sent, shares = zip(*found, strict=True)
    if None in sent:
        print("Statements are not counted: there is no server whose log can be read.")
    else:
        report.row("statements", sent, unit="/s")
    report.row("processor", shares, unit="% of one")


def once(load, options):
    """Return how many statements a second it sends, if that is known, and its percent."""
    from django.db import connection

    with counted(connection) as statements, draining.ready(load, options.directory) as fleet:
        connection.close()
        time.sleep(options.settle)
        if statements:
            statements.forget()
        before = fleet.processor_time
        time.sleep(options.seconds)
        share = 100 * (fleet.processor_time - before) / options.seconds
        sent = statements.by_pid().total() / options.seconds if statements else None
    return sent, share
