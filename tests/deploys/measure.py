"""Measures the check before a deploy: ``python -m tests.deploys --measure 1000000``."""

import json
import time

from django.db import connection

from atp import task_type
from atp.fields import uuid7
from atp.models import Inputs, Instance, Task, Type
from atp.payload.json import to_json
from atp.reports.pending import pending
from atp.store import get_store

TYPE = "deploys.measured"
CHUNK = 20_000


def measure(count):
    """Enqueue this many Instances, run the check, and print the time; return the exit status."""

    @task_type(TYPE)
    def handler(context, *, path, azimuth=315.0, zoom):
        """The handler of the next release, which requires another argument."""

    _fill(count, handler)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    took = []
    inputs = get_store().inputs
    after = 0
    while after is not None:
        began = time.perf_counter()
        _, after = inputs.shapes(after)
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    found = pending()
    seconds = time.perf_counter() - began
    facts = {
        "database": connection.vendor,
        "waiting": found.looked_at,
        "seconds": round(seconds, 2),
        "longest portion": round(max(took), 3),
        "found": [each.count for each in found.findings],
    }
    print(json.dumps(facts))
    return 0


def _fill(count, declared):
    from atp import queue

    queue.register(declared)
    type, now = Type.objects.get(identifier=TYPE), get_store().now()
    for start in range(0, count, CHUNK):
        keys = range(start + 1, min(start + CHUNK, count) + 1)
        Instance.objects.bulk_create(
            Instance(pk=key, uuid=uuid7(), type=type, state="ACCEPTED", created=now) for key in keys
        )
        Inputs.objects.bulk_create(
            Inputs(instance_id=key, data=to_json({"path": f"scene-{key}.tif", "azimuth": 1.5}))
            for key in keys
        )
        Task.objects.bulk_create(Task(instance_id=key, type=type, due_at=now) for key in keys)
