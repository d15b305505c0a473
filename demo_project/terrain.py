"""A digital elevation model, and what can be read from its surface.

The model is the one that matplotlib ships as sample data: the Jacksboro fault
in Tennessee, 30 by 32 km, one elevation every three arc seconds.
"""

from dataclasses import dataclass, replace
from importlib.metadata import distribution
from itertools import pairwise
from math import cos, radians

import numpy as np

_SAMPLE = "matplotlib/mpl-data/sample_data/jacksboro_fault_dem.npz"


@dataclass(frozen=True, kw_only=True)
class Terrain:
    """Elevations in metres, the first row in the north, on cells of ``dx`` by ``dy`` metres."""

    elevation: np.ndarray
    dx: float
    dy: float

    @property
    def cell_area(self):
        """In square metres."""
        return self.dx * self.dy

    def refined(self, factor):
        """Return the same terrain on a grid finer by a whole ``factor``, interpolated."""
        from PIL import Image

        if factor == 1:
            return self
        rows, columns = self.elevation.shape
        image = Image.fromarray(self.elevation.astype(np.float32))
        finer = image.resize((columns * factor, rows * factor), Image.Resampling.BICUBIC)
        return Terrain(
            elevation=np.asarray(finer, dtype=float), dx=self.dx / factor, dy=self.dy / factor
        )


def metres_per_degree(latitude):
    """Return the length of one degree of longitude and of one of latitude on WGS 84, in metres."""
    phi = radians(latitude)
    longitude = 111412.84 * cos(phi) - 93.5 * cos(3 * phi) + 0.118 * cos(5 * phi)
    return longitude, 111132.92 - 559.82 * cos(2 * phi) + 1.175 * cos(4 * phi)


def load():
    """Return the Jacksboro fault."""
    # Asked of the package's metadata: importing matplotlib for one file would
    # cost each worker its memory.
    path = distribution("matplotlib").locate_file(_SAMPLE)
    with np.load(path) as data:
        # What the file calls ymin is the northern edge, where the rows begin.
        latitude = (float(data["ymin"]) + float(data["ymax"])) / 2
        per_longitude, per_latitude = metres_per_degree(latitude)
        return Terrain(
            elevation=data["elevation"].astype(float),
            dx=float(data["dx"]) * per_longitude,
            dy=float(data["dy"]) * per_latitude,
        )


def gradient(terrain):
    """Return the rise per metre towards the east and towards the north (Horn 1981)."""
    z = np.pad(terrain.elevation, 1, mode="reflect", reflect_type="odd")
    across = z[:, 2:] - z[:, :-2]
    along = z[:-2, :] - z[2:, :]
    east = (across[:-2] + 2 * across[1:-1] + across[2:]) / (8 * terrain.dx)
    north = (along[:, :-2] + 2 * along[:, 1:-1] + along[:, 2:]) / (8 * terrain.dy)
    return east, north


def hillshade(terrain, *, azimuth=315.0, altitude=45.0, exaggeration=1.0):
    """Return how bright each cell is, from 0 to 1, in the light of a sun.

    ``azimuth`` in degrees clockwise from the north, ``altitude`` in degrees
    above the horizon. A surface that faces the sun has 1.
    """
    east, north = (exaggeration * part for part in gradient(terrain))
    towards, height = radians(azimuth), radians(altitude)
    sun_east = np.sin(towards) * np.cos(height)
    sun_north = np.cos(towards) * np.cos(height)
    shade = (np.sin(height) - east * sun_east - north * sun_north) / np.sqrt(1 + east**2 + north**2)
    return np.clip(shade, 0, 1)


def shaded_part(terrain, part, **light):
    """Return the elevations of a part of the terrain, and how bright each cell of it is.

    ``part`` are the first row and the row behind the last, and the columns likewise. Parts
    that are drawn one by one fit together: each is computed with the cells around it.
    """
    top, bottom, left, right = part
    above, before = min(top, 1), min(left, 1)
    framed = terrain.elevation[top - above : bottom + 1, left - before : right + 1]
    shade = hillshade(replace(terrain, elevation=framed), **light)
    shade = shade[above : above + bottom - top, before : before + right - left]
    return terrain.elevation[top:bottom, left:right], shade


def parts(terrain, rows, columns):
    """Return the parts of the terrain, so many in a column and in a row, from the north-west."""
    down = np.linspace(0, terrain.elevation.shape[0], rows + 1).astype(int).tolist()
    across = np.linspace(0, terrain.elevation.shape[1], columns + 1).astype(int).tolist()
    return [
        [top, bottom, left, right]
        for top, bottom in pairwise(down)
        for left, right in pairwise(across)
    ]


def statistics(terrain, bins=20):
    """Return what can be said of the terrain in numbers; metres, degrees and square kilometres."""
    z = terrain.elevation
    slope = np.degrees(np.arctan(np.hypot(*gradient(terrain))))
    counts, edges = np.histogram(z, bins=bins)
    rows, columns = z.shape
    return {
        "rows": rows,
        "columns": columns,
        "cell": {"dx": round(terrain.dx, 2), "dy": round(terrain.dy, 2)},
        "area_km2": round(z.size * terrain.cell_area / 1e6, 2),
        "elevation": {**_summary(z), "relief": round(float(z.max() - z.min()), 2)},
        "slope": {
            **_summary(slope),
            "share_over_30_degrees": round(float((slope > 30).mean()), 4),
        },
        "histogram": {
            "edges": [round(float(edge), 2) for edge in edges],
            "counts": [int(count) for count in counts],
        },
    }


def _summary(values):
    numbers = {
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "std": values.std(),
        "median": np.median(values),
    }
    return {name: round(float(number), 2) for name, number in numbers.items()}
