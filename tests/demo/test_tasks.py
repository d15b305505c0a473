"""The handlers, called with a Context on the real model."""

import itertools
import os
import signal
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
from django.core.files.storage import default_storage
from PIL import Image

from atp import Interrupted, Retry
from atp.payload import tagged_json
from atp.testing import Kit
from demo_project import terrain

from ..environment import ROOT


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


def test_statistics_answers_with_json(tasks, context):
    answer = tasks.statistics(context(), bins=7)
    assert tagged_json.from_json(tagged_json.to_json(answer)) == answer
    assert sum(answer["histogram"]["counts"]) == 344 * 403
    assert 0 < answer["slope"]["mean"] < answer["slope"]["max"] < 90


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
    assert all(earlier <= later for earlier, later in itertools.pairwise(fractions))


def test_flow_ends_when_it_is_asked_to(tasks, context):
    made = context()
    made.cancel()
    with pytest.raises(Interrupted):
        tasks.flow(made, detail=2)


@pytest.mark.parametrize("detail", [0, 1, 3, -2])
def test_flow_refuses_a_detail_that_it_cannot_draw(tasks, context, detail):
    with pytest.raises(ValueError, match="must be an even number"):
        tasks.flow(context(), detail=detail)


def test_busy_at_first_turns_two_calls_away(tasks, context):
    for attempt in (1, 2):
        with pytest.raises(Retry) as raised:
            tasks.busy_at_first(context(attempt=attempt))
        assert raised.value.after == 1
    assert tasks.busy_at_first(context(attempt=3)) == "served on call 3"


def test_crash_ends_its_process_by_a_segmentation_fault(tmp_path):
    program = (
        "import django; django.setup()\n"
        "from types import SimpleNamespace\n"
        "from demo_project.tasks import crash\n"
        "crash(SimpleNamespace(attempt=1, log=lambda text: print(text, flush=True)))\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "demo_project.settings"}
    environment |= {"DEMO_DIR": str(tmp_path), "DATABASE_URL": "", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert ended.returncode == -signal.SIGSEGV
    assert b"about to crash" in ended.stdout
    assert not list(tmp_path.glob("core*"))


def test_the_tiles_of_the_graph_make_one_picture(tasks, context):
    found = tasks.survey(context(), detail=2)
    shared = {"scale": found["scale"], "detail": found["detail"]}
    tiles = [tasks.tile(context(), part=part, **shared).content for part in found["parts"]]
    image = opened(tasks.mosaic(context(), parts=found["parts"], tiles=tiles))
    assert image.width == tasks.PICTURE_WIDTH
    darkest, brightest = image.convert("L").getextrema()
    assert brightest - darkest > 150
