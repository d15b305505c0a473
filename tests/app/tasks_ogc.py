"""Types that are processes, for the tests of OGC API – Processes."""

import sys
import time
from datetime import date, timedelta
from pathlib import Path

from atp import Interrupted, task_type
from atp.ogc import File, process

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict


class Relief(TypedDict):
    height: float
    day: date
    tiles: list[int]


@process(
    title="Relief of a DEM",
    keywords=["terrain"],
    outputs={"relief": File("image/png", title="The relief")},
)
@task_type("ogc.relief", public=True)
def relief(
    context,
    bbox: tuple[float, float, float, float],
    day: date | None = None,
    zoom: int = 8,
) -> Relief:
    """Draw the relief of a digital elevation model.

    Args:
        bbox: west, south, east and north
        zoom: the level of the tiles
    """
    path = context.scratch / "relief.png"
    path.write_bytes(b"\x89PNG")
    context.publish(path)
    return {"height": bbox[3] - bbox[1], "day": day or date(2030, 1, 31), "tiles": [zoom]}


@process(sync=True)
@task_type("ogc.echo", public=True)
def echo(context, text: str = "", pause: timedelta | float = 0.0, fail: bool = False) -> str:
    """Return a text."""
    context.progress(0.5, message="halfway")
    context.flush()
    time.sleep(pause.total_seconds() if isinstance(pause, timedelta) else pause)
    if fail:
        raise ValueError("it was told to fail\nwith a second line")
    return text


@task_type("ogc.private")
def private(context):
    """Be offered to nobody."""


@task_type("ogc.positions", public=True)
def positions(context, *numbers: int):
    """Have arguments that a client cannot name."""


@process(outputs={"map": File("image/png"), "notes": File("text/plain")})
@task_type("ogc.files", public=True)
def files(context) -> Relief:
    """Publish files whose names differ little, and that of a returned field."""
    context.publish(b"{}", "map.json")
    context.publish(b"png", "map.png")
    context.publish(b"first", "deep/a b.txt")
    context.publish(b"second", "deep/a b.txt")
    context.publish(b"a field", "height")
    return {"height": 1.5, "day": date(2030, 1, 31), "tiles": []}


@task_type("ogc.tidy", public=True, cancel_grace=600)
def tidy(context, flag: str) -> None:
    """Run until it is cancelled, and then clean up until there is a file."""
    context.progress(0.5, message="halfway")
    context.flush()
    try:
        time.sleep(600)
    except Interrupted:
        while not Path(flag).exists():
            time.sleep(0.01)
        raise
