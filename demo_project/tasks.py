"""The demo's Types, which analyse terrain, fail on purpose, or run on a schedule.

Each handler imports its libraries when it runs. ATP imports this module in every process, and the
process that supervises the workers should use little memory.
"""

import os
import resource
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from atp import Output, Retry, schedule, task_type
from atp.conf import settings
from atp.ogc import File, process

PICTURE_WIDTH = 806
BUSY_ATTEMPTS = 2
# Where terrain is analysed: by the daemon itself, or on a cluster.
TERRAIN = {
    "retention": timedelta(days=30),
    "executor": "dask" if "dask" in settings.EXECUTORS else "",
}


@process(title="Hillshade", keywords=["terrain", "relief"])
@task_type("terrain.hillshade", timeout=60, public=True, **TERRAIN)
def hillshade(
    context, *, azimuth: float = 315.0, altitude: float = 45.0, exaggeration: float = 1.5
):
    """Draw the terrain in sunlight, and return a PNG.

    The sun's ``azimuth`` is in degrees clockwise from north, and its ``altitude`` in degrees above
    the horizon. ``exaggeration`` multiplies the heights.
    """
    from . import pictures, terrain

    model = terrain.load()
    finer = model.refined(2)
    context.progress(1, 3, "light and shadow")
    shade = terrain.hillshade(finer, azimuth=azimuth, altitude=altitude, exaggeration=exaggeration)
    context.progress(2, 3, "colours")
    picture = pictures.shaded_relief(finer.elevation, shade)
    return _png(picture, model)


@process(title="Elevations and slopes", keywords=["terrain", "statistics"])
@task_type("terrain.statistics", timeout=60, public=True, **TERRAIN)
def statistics(context, *, bins: int = 20):
    """Return statistics about elevations and slopes, and a histogram with ``bins`` bins."""
    from . import terrain

    return terrain.statistics(terrain.load(), bins=bins)


@process(
    title="Flow of water",
    keywords=["terrain", "hydrology"],
    outputs={"flow": File("application/octet-stream", title="The area that drains through a cell")},
)
@task_type("terrain.flow", timeout=300, public=True, **TERRAIN)
def flow(context, *, detail: int = 4):
    """Compute where water flows, and return a PNG of the streams.

    ``detail`` is the factor by which the grid is refined, and must be even. The run time grows with
    the square of ``detail``. The handler also publishes a .npy file that contains, for each cell,
    the area in square metres that drains through the cell.
    """
    import numpy as np

    from . import flow as water
    from . import pictures, terrain

    if detail < 2 or detail % 2:
        raise ValueError(f"detail={detail}: must be an even number, 2 or more")
    model = terrain.load()
    finer = model.refined(detail)
    filled = water.fill_depressions(
        finer.elevation, _tick(context, 0.0, 0.7, "filling depressions")
    )
    receiver = water.receivers(filled, finer.dx, finer.dy)
    amount = water.accumulate(filled, receiver, _tick(context, 0.75, 0.95, "following the water"))
    context.progress(0.95, message="drawing")
    saved = context.scratch / "flow.npy"
    np.save(saved, (amount * finer.cell_area).astype(np.float32))
    context.publish(saved)
    context.log(f"{int((receiver < 0).sum())} cells drain out of the map")
    shade = terrain.hillshade(model.refined(2), exaggeration=1.5)
    return _png(pictures.flow_map(amount, shade), model)


# The Types of a graph with parallel tiles, a mosaic and a report. See show/programme.py.

TILES = (2, 3)
LIGHT = {"exaggeration": 1.5}


@task_type("terrain.survey", timeout=60, **TERRAIN)
def survey(context, *, detail: int = 3, rows: int = 2, columns: int = 3):
    """Divide the terrain into tiles, and compute the colour scale that all tiles share."""
    from . import pictures, terrain

    model = terrain.load()
    shade = terrain.hillshade(model, **LIGHT)
    return {
        "parts": terrain.parts(model.refined(detail), rows, columns),
        "detail": detail,
        "scale": pictures.scale_of(model.elevation, shade),
    }


@task_type("terrain.tile", timeout=60, **TERRAIN)
def tile(context, *, part: list[int], scale: dict[str, list[float]], detail: int = 3):
    """Draw one part of the terrain, and return a PNG with one pixel per cell."""
    from . import pictures, terrain

    model = terrain.load().refined(detail)
    context.progress(1, 2, "light and shadow")
    elevation, shade = terrain.shaded_part(model, part, **LIGHT)
    colours = pictures.shaded_relief(elevation, shade, scale)
    return Output(pictures.png(colours, width=colours.shape[1], aspect=1), "image/png")


@task_type("terrain.mosaic", timeout=60, **TERRAIN)
def mosaic(context, *, parts: list[list[int]], tiles: list[bytes]):
    """Join the tiles into one picture of the terrain."""
    from . import pictures, terrain

    joined = pictures.joined(list(zip(parts, tiles, strict=True)))
    return _png(joined, terrain.load())


@task_type("terrain.report", timeout=60, **TERRAIN)
def report(context, *, numbers: dict[str, Any]):
    """Return a short report on the survey, even if the mosaic FAILED."""
    drawn = context.results.node("mosaic")
    elevation, slope = numbers["elevation"], numbers["slope"]
    return (
        f"Mosaic: {drawn.state}\n"
        f"Area: {numbers['area_km2']} km²\n"
        f"Elevation: {elevation['min']} to {elevation['max']} m, mean {elevation['mean']} m\n"
        f"Slope: mean {slope['mean']}°, {slope['share_over_30_degrees']:.1%} over 30°\n"
    )


@task_type("demo.busy_at_first", timeout=60, max_retries=3)
def busy_at_first(context):
    """Simulate a service that rejects its first two calls, so the Task is retried twice."""
    if context.attempt <= BUSY_ATTEMPTS:
        raise Retry(f"the service is busy (call {context.attempt})", after=1)
    return f"served on call {context.attempt}"


@task_type("demo.crash", timeout=60, max_restarts=2)
def crash(context):
    """Crash the worker process with a segmentation fault, as a faulty C extension would."""
    context.log(f"attempt {context.attempt} is about to crash process {os.getpid()}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


@task_type("demo.on_time", timeout=60, retention=timedelta(hours=1))
def on_time(context, *, slot: datetime | None = None):
    """Return how many seconds after its slot the handler runs, or None without a slot."""
    return None if slot is None else (datetime.now(UTC) - slot).total_seconds()


schedule("each-ten-seconds", on_time, every=10, overlap="skip")


def _tick(context, start, end, message):
    """Return a callback that reports an algorithm's progress between ``start`` and ``end``."""

    def tick(fraction):
        context.check()
        context.progress(start + (end - start) * fraction, message=message)

    return tick


def _png(picture, model):
    from . import pictures

    data = pictures.png(picture, width=PICTURE_WIDTH, aspect=model.dy / model.dx)
    return Output(data, "image/png")
