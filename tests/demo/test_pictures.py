"""Colours and PNG."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from demo_project import pictures


def test_a_ramp_meets_its_stops_and_goes_straight_between_them():
    stops = ((0.0, (0, 0, 0)), (0.5, (255, 0, 0)), (1.0, (255, 255, 255)))
    colours = pictures.ramp(np.array([0.0, 0.25, 0.5, 1.0]), stops)
    assert colours == pytest.approx(np.array([[0, 0, 0], [0.5, 0, 0], [1, 0, 0], [1, 1, 1]]))


def test_a_stream_keeps_its_strength_on_a_coarser_picture():
    amount = np.ones((4, 4))
    amount[1, 2] = 100
    drawn = pictures.flow_map(amount, shade=np.ones((2, 2)))
    assert drawn[0, 1].sum() == drawn.sum(axis=2).min()


def test_a_picture_shows_cells_in_their_true_proportions():
    data = pictures.png(np.zeros((10, 20, 3)), width=40, aspect=1.5)
    assert Image.open(BytesIO(data)).size == (40, 30)


def test_tiles_are_joined_where_they_belong():
    colours = np.linspace(0, 1, 4 * 6 * 3).reshape(4, 6, 3).round(2)
    parts = [[top, top + 2, left, left + 3] for top in (0, 2) for left in (0, 3)]
    tiles = [pictures.png(colours[t:b, at:r], width=3, aspect=1) for t, b, at, r in parts]
    joined = pictures.joined(list(zip(parts, tiles, strict=True)))
    assert joined == pytest.approx(colours, abs=1 / 255)
