"""Reading the surface: planes whose slopes are known, and the real model."""

from math import radians, sin, tan

import numpy as np
import pytest

from demo_project import terrain


def plane(east=0.0, north=0.0, dx=10.0, dy=20.0):
    """A plane that rises by so many metres per metre; the first row is the northern one."""
    rows, columns = np.mgrid[0:5, 0:6]
    return terrain.Terrain(
        elevation=100 + east * columns * dx - north * rows * dy,
        dx=dx,
        dy=dy,
    )


@pytest.mark.parametrize(
    ("latitude", "longitude", "other"),
    [(0, 111_320, 110_574), (45, 78_847, 111_132), (60, 55_800, 111_412)],
)
def test_a_degree_is_as_long_as_tables_of_wgs84_say(latitude, longitude, other):
    assert terrain.metres_per_degree(latitude) == pytest.approx((longitude, other), abs=1)


def test_the_gradient_of_a_plane_is_the_same_everywhere_also_at_the_edges():
    east, north = terrain.gradient(plane(east=0.3, north=-0.2))
    assert east == pytest.approx(np.full((5, 6), 0.3))
    assert north == pytest.approx(np.full((5, 6), -0.2))


def test_flat_land_is_as_bright_as_the_sun_is_high():
    shade = terrain.hillshade(plane(), azimuth=123, altitude=40)
    assert shade == pytest.approx(np.full((5, 6), sin(radians(40))))


@pytest.mark.parametrize(
    ("azimuth", "brightness"),
    [(90, 1.0), (270, 0.5), (0, sin(radians(60)) ** 2), (180, sin(radians(60)) ** 2)],
)
def test_a_slope_of_30_degrees_towards_the_east_in_a_sun_60_degrees_high(azimuth, brightness):
    slope = plane(east=-tan(radians(30)))
    shade = terrain.hillshade(slope, azimuth=azimuth, altitude=60)
    assert shade == pytest.approx(np.full((5, 6), brightness))


def test_what_faces_north_is_bright_when_the_sun_is_there_and_dark_when_not():
    steep = plane(north=-2.0)
    assert terrain.hillshade(steep, azimuth=0).min() > 0.9
    assert terrain.hillshade(steep, azimuth=180).max() == 0


def test_exaggeration_multiplies_the_heights():
    gentle, steep = plane(east=0.1), plane(east=0.3)
    exaggerated = terrain.hillshade(gentle, exaggeration=3.0)
    assert exaggerated == pytest.approx(terrain.hillshade(steep))


def test_the_real_model_has_its_true_size():
    model = terrain.load()
    assert model.elevation.shape == (344, 403)
    assert (model.dx, model.dy) == pytest.approx((74.6, 92.5), abs=0.1)
    # The ridge of the Cumberland Mountains is in the south-west of the map.
    row, column = np.unravel_index(model.elevation.argmax(), model.elevation.shape)
    assert row > 200
    assert column < 250


def test_a_refined_model_covers_the_same_land():
    model = plane(east=0.1)
    finer = model.refined(2)
    assert finer.elevation.shape == (10, 12)
    assert finer.elevation.size * finer.cell_area == model.elevation.size * model.cell_area
    assert finer.elevation.mean() == pytest.approx(model.elevation.mean())
    assert model.refined(1) is model


def test_statistics_of_a_plane():
    numbers = terrain.statistics(plane(east=1.0), bins=5)
    assert numbers["elevation"] == {
        "min": 100.0,
        "max": 150.0,
        "mean": 125.0,
        "std": 17.08,
        "median": 125.0,
        "relief": 50.0,
    }
    assert numbers["slope"]["min"] == numbers["slope"]["max"] == 45.0
    assert numbers["slope"]["share_over_30_degrees"] == 1.0
    assert numbers["area_km2"] == round(30 * 200 / 1e6, 2)
    assert numbers["histogram"]["counts"] == [5, 5, 5, 5, 10]


def test_parts_of_a_relief_fit_together():
    """Each is computed by itself, and none shows where it ends."""
    model = terrain.load()
    whole = terrain.hillshade(model, exaggeration=1.5)
    parts = terrain.parts(model, 2, 3)
    assert len(parts) == 6
    for top, bottom, left, right in parts:
        elevation, shade = terrain.shaded_part(model, (top, bottom, left, right), exaggeration=1.5)
        assert np.array_equal(elevation, model.elevation[top:bottom, left:right])
        assert shade == pytest.approx(whole[top:bottom, left:right])
