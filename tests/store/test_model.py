"""Random sequences of verbs by several actors, on every store and on the model (G6).

``ATP_MODEL_EXAMPLES`` and ``ATP_MODEL_STEPS`` make it a long search, with another seed
each time::

    ATP_MODEL_EXAMPLES=2000 ATP_MODEL_STEPS=80 python -m tests.run tests/store/test_model.py
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .actors import Queue

EXAMPLES = int(os.environ.get("ATP_MODEL_EXAMPLES", "0"))
# In a usual run, and with --all.
BUDGETS = [5, pytest.param(60, marks=pytest.mark.long)]
STEPS = int(os.environ.get("ATP_MODEL_STEPS", "50"))


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES else 300)
@pytest.mark.parametrize("examples", [EXAMPLES] if EXAMPLES else BUDGETS)
def test_every_store_does_what_the_model_does(world, examples):
    """G1, G4, G5, G6 and G8, whatever the order in which who does what."""
    own = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        derandomize=not EXAMPLES,
        print_blob=bool(EXAMPLES),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Queue(world), settings=own)
