"""Measures the check before a deploy: ``python -m tests.deploys --measure 1000000``."""

import json
import time

from django.db import connection

from atp import task_type
from atp.operations.registry import registry
from atp.reports.pending import pending

TYPE = "deploys.measured"
CHUNK = 20_000


def measure(count):
    """Enqueue this many Instances, run the check, and print the time; return the exit status."""
    measured = task_type(TYPE)(lambda context, *, path, azimuth=315.0: path)
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        measured.enqueue_many({"path": f"scene-{n}.tif", "azimuth": 1.5} for n in numbers)
    # The handler of the next release requires another argument.
    registry.remove(TYPE)
    task_type(TYPE)(lambda context, *, path, azimuth=315.0, zoom: path)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    began = time.perf_counter()
    found = pending()
    facts = {
        "database": connection.vendor,
        "waiting": found.looked_at,
        "seconds": round(time.perf_counter() - began, 2),
        "found": [each.count for each in found.findings],
    }
    print(json.dumps(facts))
    return 0
