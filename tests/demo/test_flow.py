"""Where the water goes: grids worked out by hand, and what holds for any land."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_project import flow

STAIRS = np.array([[9.0, 8, 7], [6, 5, 4], [3, 2, 1]])


def test_water_takes_the_steepest_way():
    receiver = flow.receivers(STAIRS, 1, 1)
    assert receiver.tolist() == [[3, 4, 5], [6, 7, 8], [7, 8, -1]]


def test_the_steepest_way_depends_on_the_true_distances():
    fall = np.array([[9.0, 6.0], [5.0, 9.0]])
    assert flow.receivers(fall, dx=1, dy=1)[0, 0] == 2
    assert flow.receivers(fall, dx=1, dy=2)[0, 0] == 1


def test_what_flows_through_a_cell_is_all_above_it():
    amount = flow.accumulate(STAIRS, flow.receivers(STAIRS, 1, 1))
    assert amount.tolist() == [[1, 1, 1], [2, 2, 2], [3, 6, 9]]


def test_a_lake_is_filled_up_to_its_outlet_and_no_further():
    bowl = np.full((5, 5), 9.0)
    bowl[1:4, 1:4] = 1.0
    bowl[2, 4] = 4.0
    filled = flow.fill_depressions(bowl)
    assert filled[1:4, 1:4] == pytest.approx(np.full((3, 3), 4.0), abs=4 * flow.STEP)
    assert (filled[1:4, 1:4] > 4.0).all()
    dry = np.ones((5, 5), bool)
    dry[1:4, 1:4] = False
    assert (filled[dry] == bowl[dry]).all()
    amount = flow.accumulate(filled, flow.receivers(filled, 1, 1))
    # Through the outlet goes the lake with the banks that drain into it.
    assert amount[2, 4] > 9


def test_land_without_depressions_stays_as_it_is():
    assert (flow.fill_depressions(STAIRS) == STAIRS).all()


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


def test_algorithms_say_how_far_they_are(monkeypatch):
    monkeypatch.setattr(flow, "TICK_EVERY", 2)
    heard = []
    filled = flow.fill_depressions(STAIRS, heard.append)
    assert heard == pytest.approx([2 / 9, 4 / 9, 6 / 9, 8 / 9])
    heard.clear()
    flow.accumulate(filled, flow.receivers(filled, 1, 1), heard.append)
    assert heard == pytest.approx([2 / 9, 4 / 9, 6 / 9, 8 / 9])
