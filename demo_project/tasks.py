"""The Types of the demo: terrain analysis, and two that show what happens when work goes wrong.

The handlers import what they need when they run. ATP imports this module in
every process, and the one that watches over the workers should stay small.
"""

import os
import resource
import signal
from datetime import timedelta

from atp import Output, Retry, task_type

PICTURE_WIDTH = 806
BUSY_ATTEMPTS = 2


@task_type("terrain.hillshade", timeout=60, retention=timedelta(days=30))
def hillshade(
    context, *, azimuth: float = 315.0, altitude: float = 45.0, exaggeration: float = 1.5
):
    """Draw the terrain in the light of a sun, as a PNG.

    ``azimuth`` in degrees clockwise from the north, ``altitude`` in degrees
    above the horizon; ``exaggeration`` multiplies the heights.
    """
    from . import pictures, terrain

    model = terrain.load()
    finer = model.refined(2)
    context.progress(1, 3, "light and shadow")
    shade = terrain.hillshade(finer, azimuth=azimuth, altitude=altitude, exaggeration=exaggeration)
    context.progress(2, 3, "colours")
    picture = pictures.shaded_relief(finer.elevation, shade)
    return _png(picture, model)


@task_type("terrain.statistics", timeout=60, retention=timedelta(days=30))
def statistics(context, *, bins: int = 20):
    """Return elevations and slopes in numbers, with a histogram of ``bins`` bins."""
    from . import terrain

    return terrain.statistics(terrain.load(), bins=bins)


@task_type("terrain.flow", timeout=300, retention=timedelta(days=30))
def flow(context, *, detail: int = 4):
    """Find where the water flows: a PNG of the streams, and the accumulation as a .npy file.

    The grid is made finer by ``detail``, an even number; the time that it
    takes grows with its square. The file holds square metres drained.
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


@task_type("demo.busy_at_first", timeout=60, max_retries=3)
def busy_at_first(context):
    """Stand for a service that turns the first two callers away."""
    if context.attempt <= BUSY_ATTEMPTS:
        raise Retry(f"the service is busy (call {context.attempt})", after=1)
    return f"served on call {context.attempt}"


@task_type("demo.crash", timeout=60, max_restarts=2)
def crash(context):
    """End the worker process by a segmentation fault, as a faulty C extension would."""
    context.log(f"attempt {context.attempt} is about to crash process {os.getpid()}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def _tick(context, start, end, message):
    """Return what an algorithm calls now and then with its own fraction done."""

    def tick(fraction):
        context.check()
        context.progress(start + (end - start) * fraction, message=message)

    return tick


def _png(picture, model):
    from . import pictures

    data = pictures.png(picture, width=PICTURE_WIDTH, aspect=model.dy / model.dx)
    return Output(data, "image/png")
