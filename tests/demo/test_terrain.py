"""The demo's terrain functions: hillshade on a plane of known slope, and the flow of water."""

from io import BytesIO
from math import radians, sin, tan

import numpy as np
import pytest
from django.core.files.storage import default_storage
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from atp import Interrupted
from atp.testing import Kit
from demo_project import flow, tasks, terrain


def plane(east=0.0, north=0.0, dx=10.0, dy=20.0):
    """Return a plane with these slopes in metres per metre; its first row is in the north."""
    rows, columns = np.mgrid[0:5, 0:6]
    return terrain.Terrain(
        elevation=100 + east * columns * dx - north * rows * dy,
        dx=dx,
        dy=dy,
    )


def test_hillshade_of_a_slope_depends_on_the_direction_of_the_sun():
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


@pytest.mark.slow
def test_the_flow_handler_reports_progress_publishes_a_file_and_returns_a_picture(media):
    with Kit() as kit:
        made, cancelled = kit.context(), kit.context()
        output = tasks.flow(made, detail=2)
        cancelled.cancel()
        with pytest.raises(Interrupted):
            tasks.flow(cancelled, detail=2)
    assert output.content_type == "image/png"
    assert Image.open(BytesIO(output.content)).width == tasks.PICTURE_WIDTH
    [published] = made.published
    with default_storage.open(published["path"]) as file:
        drained = np.load(file)
    assert drained.shape == (688, 806)
    model = terrain.load()
    assert drained.min() == pytest.approx(model.cell_area / 4)
    whole = model.elevation.size * model.cell_area
    assert whole / 10 < drained.max() < whole
    fractions = [fraction for fraction, _ in made.progressed]
    assert len(fractions) > 2
    assert fractions == sorted(fractions)
