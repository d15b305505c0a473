"""Enqueues the demo's tasks, and checks that they ended as expected."""

import math
import re
from io import BytesIO

from django.core.files.storage import storages
from django.db import transaction
from django.db.models import Q

from atp import Graph, queue, result
from atp.conf import settings
from atp.models import Instance
from atp.states import Event, Reason, State

from .. import tasks
from .board import label

CRASHING = tasks.crash.identifier
PICTURE = "image/png"
PICTURES = [each.identifier for each in (tasks.flow, tasks.hillshade, tasks.tile, tasks.mosaic)]
# Instances of a schedule are shown on the schedule's page.
NOT_OF_A_SCHEDULE = ~Q(created_by__startswith="schedule ")
# The maximum length of a picture's file name without its suffix, because inputs can be long.
MAX_NAME = 100


def enqueue():
    """Enqueue the demo's tasks in one transaction, and return their Instances."""
    by = {"created_by": "the demo"}
    with transaction.atomic(using=settings.DATABASE):
        return [
            tasks.flow.using(**by).enqueue(),
            tasks.statistics.using(**by).enqueue(),
            *tasks.hillshade.using(**by, collection="tour").enqueue_many(
                {"azimuth": azimuth} for azimuth in (315, 45, 225)
            ),
            tasks.hillshade.using(**by).enqueue(azimuth=270, altitude=15),
            tasks.busy_at_first.using(**by).enqueue(),
            tasks.crash.using(**by).enqueue(),
            *relief(),
        ]


def relief():
    """Submit a graph with parallel tiles, a mosaic and a report, and return its Instances."""
    with Graph("relief", by="the demo") as graph:
        survey = graph.add(tasks.survey)
        found = result(survey)
        shared = {"scale": found["scale"], "detail": found["detail"]}
        parts = math.prod(tasks.TILES)
        tiles = graph.map(
            tasks.tile, ({"part": found["parts"][n], **shared} for n in range(parts)), after=survey
        )
        mosaic = graph.add(
            tasks.mosaic, parts=found["parts"], tiles=result(tiles), after=[survey, tiles]
        )
        numbers = graph.add(tasks.statistics)
        ends = [mosaic, numbers]
        graph.add(tasks.report, numbers=result(numbers), after=ends, on_failure="run")
    nodes = graph.row.nodes.select_related("instance__type").order_by("pk")
    return [node.instance for node in nodes]


def selected(limit=None, *conditions, **named):
    """Return the matching Instances, oldest first, with the rows that board and table show."""
    rows = Instance.objects.using(settings.DATABASE).select_related("type", "inputs", "node")
    return list(rows.filter(*conditions, **named).order_by("pk")[:limit])


def save_picture(instance, directory):
    """Write an Instance's Response to a file if it is a picture, and return its path or None."""
    response = queue.response(instance)
    if response is None or response.content_type != PICTURE:
        return None
    directory.mkdir(exist_ok=True)
    name = re.sub(r"[^\w.]+", "-", label(instance))[:MAX_NAME]
    path = directory / f"{name}.png"
    path.write_bytes(response.body)
    return path


def problems(instance, picture):
    """Return texts that say in which ways a task from :func:`enqueue` went wrong."""
    if instance.type.identifier == CRASHING:
        return _problems_of_crash(instance)
    if instance.state != State.FINISHED:
        return [f"is {_ended(instance)} instead of {State.FINISHED}"]
    found = []
    if instance.type.identifier == tasks.busy_at_first.identifier and not instance.retries:
        found.append("was not retried")
    if instance.type.identifier in PICTURES:
        found += _problems_of_picture(picture)
    if instance.type.identifier == tasks.report.identifier:
        found += (
            []
            if "Mosaic: FINISHED" in instance.response.value
            else ["ran before the mosaic was finished"]
        )
    if instance.type.identifier == tasks.flow.identifier:
        storage = storages[settings.STORAGE]
        files = [entry["path"] for entry in instance.response.files]
        if not files or not all(storage.exists(path) for path in files):
            found.append("did not publish its file")
    return found


def _problems_of_crash(instance):
    found = []
    if (instance.state, instance.reason) != (State.FAILED, Reason.STALE):
        found.append(f"is {_ended(instance)} instead of FAILED STALE")
    losses = instance.log.filter(kind=Event.EXPIRE).count()
    if losses <= instance.type.max_restarts or instance.restarts <= instance.type.max_restarts:
        found.append(
            f"was lost {losses} times, {instance.restarts} of them running: "
            f"{instance.type.max_restarts} restarts are allowed"
        )
    return found


def _problems_of_picture(path):
    from PIL import Image

    if path is None:
        return ["returned no picture"]
    with Image.open(BytesIO(path.read_bytes())) as image:
        darkest, brightest = image.convert("L").getextrema()
    # A picture that is not blank contains light and dark pixels.
    return [] if brightest - darkest > 100 else [f"drew nothing: {path}"]


def table(instances, pictures, problems_of):
    """Return a table of the tasks' results as lines of text.

    ``pictures`` and ``problems_of`` map keys of Instances to paths and to problems.
    """
    rows = [("task", "state", "attempts", "run time", "went")]
    for instance in instances:
        problem = "; ".join(problems_of.get(instance.pk, ()))
        rows.append(
            (
                label(instance),
                _ended(instance),
                str(instance.attempt),
                _run_time(instance),
                problem or "as expected",
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if pictures:
        lines += ["", "pictures:", *(f"  {path}" for path in pictures.values())]
    return lines


def _ended(instance):
    return f"{instance.state} {instance.reason}".strip()


def _run_time(instance):
    """Return how long the last attempt ran, as text."""
    if instance.started is None or instance.finished is None:
        return "-"
    return f"{(instance.finished - instance.started).total_seconds():.2f} s"
