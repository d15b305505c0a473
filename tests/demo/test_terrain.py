"""Reading the surface: a plane whose slope is known, and where water goes."""

from math import radians, sin, tan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_project import flow, terrain


def plane(east=0.0, north=0.0, dx=10.0, dy=20.0):
    """A plane that rises by so many metres per metre; the first row is the northern one."""
    rows, columns = np.mgrid[0:5, 0:6]
    return terrain.Terrain(
        elevation=100 + east * columns * dx - north * rows * dy,
        dx=dx,
        dy=dy,
    )


def test_a_slope_of_30_degrees_towards_the_east_in_a_sun_60_degrees_high():
    slope = plane(east=-tan(radians(30)))
    for azimuth, brightness in ((90, 1.0), (270, 0.5), (0, sin(radians(60)) ** 2)):
        shade = terrain.hillshade(slope, azimuth=azimuth, altitude=60)
        assert shade == pytest.approx(np.full((5, 6), brightness))
    assert terrain.hillshade(plane(), altitude=40) == pytest.approx(sin(radians(40)))


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    levels=st.sampled_from([1, 2, 5, 1000]),
)
def test_all_water_leaves_any_land_over_its_edge(seed, rows, columns, levels):
    land = np.random.default_rng(seed).integers(0, levels, (rows, columns)).astype(float)
    filled = flow.fill_depressions(land)
    assert (filled >= land).all()
    receiver = flow.receivers(filled, 2, 3)
    assert (receiver[1:-1, 1:-1] >= 0).all()
    amount = flow.accumulate(filled, receiver)
    assert amount[receiver == -1].sum() == land.size
