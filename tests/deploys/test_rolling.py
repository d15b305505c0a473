"""Rolling deploys, in short; ``python -m tests.deploys`` does it with more (docs/deploying.md)."""

import pytest

from .rolling import Rolling


@pytest.mark.processes
def test_nothing_fails_while_a_daemon_that_fits_lives(transactional_db, tmp_path):
    """G2: forward, back and forward again; the look before each switch names what would fail."""
    with Rolling(tmp_path) as rolling:
        rolling.roll()
