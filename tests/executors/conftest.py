"""What the tests of executors share: an engine, and daemons whose attempts it runs."""

import pytest

from tests.app import tasks_executors as types

from .engines import ENGINES


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name == "fork" else pytest.mark.long) for name in ENGINES
    ]
)
def engine(request, tmp_path):
    if request.param not in ENGINES:
        pytest.skip(f"the library of {request.param} is not installed")
    with ENGINES[request.param](tmp_path) as engine:
        yield engine


@pytest.fixture
def follows(atpd, engine):
    """Start a daemon whose attempts the engine runs."""

    def start(**settings):
        own = {"EXECUTORS": {types.ENGINE: engine.options}} | settings
        return atpd("--executor", types.ENGINE, settings=own)

    return start
