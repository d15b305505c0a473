"""Loads a digital elevation model, and computes slopes, shading and statistics from it.

The model is sample data from matplotlib. It covers the Jacksboro fault in Tennessee, 30 by 32 km,
with one elevation every three arc seconds.
"""

from dataclasses import dataclass, replace
from importlib.metadata import distribution
from itertools import pairwise
from math import cos, radians

import numpy as np

_SAMPLE = "matplotlib/mpl-data/sample_data/jacksboro_fault_dem.npz"


@dataclass(frozen=True, kw_only=True)
class Terrain:
    """A grid of elevations in metres, with cells of ``dx`` by ``dy`` metres.

    The first row is the northernmost.
    """

    elevation: np.ndarray
    dx: float
    dy: float

    @property
    def cell_area(self):
        """The area of one cell in square metres."""
        return self.dx * self.dy

    def refined(self, factor):
        """Return the terrain interpolated on a grid that is ``factor`` times finer."""
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
    """Return the lengths of a degree of longitude and of latitude on WGS 84, in metres."""
    phi = radians(latitude)
    longitude = 111412.84 * cos(phi) - 93.5 * cos(3 * phi) + 0.118 * cos(5 * phi)
    return longitude, 111132.92 - 559.82 * cos(2 * phi) + 1.175 * cos(4 * phi)


def load():
    """Load the terrain of the Jacksboro fault."""
    # The path comes from the package's metadata, because importing matplotlib for one file would
    # cost each worker memory.
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
    """Return two grids with the rise per metre towards the east and the north (Horn 1981)."""
    z = np.pad(terrain.elevation, 1, mode="reflect", reflect_type="odd")
    across = z[:, 2:] - z[:, :-2]
    along = z[:-2, :] - z[2:, :]
    east = (across[:-2] + 2 * across[1:-1] + across[2:]) / (8 * terrain.dx)
    north = (along[:, :-2] + 2 * along[:, 1:-1] + along[:, 2:]) / (8 * terrain.dy)
    return east, north


def hillshade(terrain, *, azimuth=315.0, altitude=45.0, exaggeration=1.0):
    """Return the brightness of each cell in sunlight, from 0 to 1.

    The sun's ``azimuth`` is in degrees clockwise from north, and its ``altitude`` in degrees above
    the horizon. A surface that faces the sun has brightness 1.
    """
    east, north = (exaggeration * part for part in gradient(terrain))
    towards, height = radians(azimuth), radians(altitude)
    sun_east = np.sin(towards) * np.cos(height)
    sun_north = np.cos(towards) * np.cos(height)
    shade = (np.sin(height) - east * sun_east - north * sun_north) / np.sqrt(1 + east**2 + north**2)
    return np.clip(shade, 0, 1)


def shaded_part(terrain, part, **light):
    """Return the elevations of a part of the terrain, and the brightness of each cell.

    ``part`` lists the first row, the row after the last, the first column, and the column after the
    last. Brightness is computed with the cells around the part, so that neighbouring parts fit
    together.
    """
    top, bottom, left, right = part
    above, before = min(top, 1), min(left, 1)
    framed = terrain.elevation[top - above : bottom + 1, left - before : right + 1]
    shade = hillshade(replace(terrain, elevation=framed), **light)
    shade = shade[above : above + bottom - top, before : before + right - left]
    return terrain.elevation[top:bottom, left:right], shade


def parts(terrain, rows, columns):
    """Divide the terrain into ``rows`` times ``columns`` parts, and return the bounds of each.

    Each part lists its top, bottom, left and right index. The first part is the north-western.
    """
    down = np.linspace(0, terrain.elevation.shape[0], rows + 1).astype(int).tolist()
    across = np.linspace(0, terrain.elevation.shape[1], columns + 1).astype(int).tolist()
    return [
        [top, bottom, left, right]
        for top, bottom in pairwise(down)
        for left, right in pairwise(across)
    ]


def statistics(terrain, bins=20):
    """Return statistics of the terrain, in metres, degrees and square kilometres."""
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
