"""The handlers, called with a Context on the real model."""

from io import BytesIO

import numpy as np
import pytest
from django.core.files.storage import default_storage
from PIL import Image

from atp import Interrupted, Retry
from atp.testing import Kit
from demo_project import terrain


@pytest.fixture
def context():
    """Make a context that keeps what a handler says."""
    with Kit() as kit:
        yield kit.context


def opened(output):
    assert output.content_type == "image/png"
    return Image.open(BytesIO(output.content))


def test_hillshade_answers_with_a_picture(tasks, context):
    image = opened(tasks.hillshade(context(), azimuth=315))
    assert image.width == tasks.PICTURE_WIDTH
    # 403 columns of 74.6 m by 344 rows of 92.5 m.
    assert image.height / image.width == pytest.approx((344 * 92.47) / (403 * 74.57), abs=0.002)
    darkest, brightest = image.convert("L").getextrema()
    assert brightest - darkest > 150
    other = opened(tasks.hillshade(context(), azimuth=135))
    assert np.abs(np.asarray(image, int) - np.asarray(other, int)).mean() > 10


def test_flow_draws_publishes_and_says_how_far_it_is(tasks, context, media):
    made = context()
    image = opened(tasks.flow(made, detail=2))
    assert image.width == tasks.PICTURE_WIDTH
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
    made = context()
    made.cancel()
    with pytest.raises(Interrupted):
        tasks.flow(made, detail=2)


def test_busy_at_first_turns_two_calls_away(tasks, context):
    for attempt in (1, 2):
        with pytest.raises(Retry) as raised:
            tasks.busy_at_first(context(attempt=attempt))
        assert raised.value.after == 1
    assert tasks.busy_at_first(context(attempt=3)) == "served on call 3"


def test_the_tiles_of_the_graph_make_one_picture(tasks, context):
    found = tasks.survey(context(), detail=2)
    shared = {"scale": found["scale"], "detail": found["detail"]}
    tiles = [tasks.tile(context(), part=part, **shared).content for part in found["parts"]]
    image = opened(tasks.mosaic(context(), parts=found["parts"], tiles=tiles))
    assert image.width == tasks.PICTURE_WIDTH
    darkest, brightest = image.convert("L").getextrema()
    assert brightest - darkest > 150
