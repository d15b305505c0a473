"""Rolling deploys, in short; ``python -m tests.deploys`` does it with more (docs/deploying.md)."""

import pytest

from .rolling import Rolling


@pytest.mark.processes
def test_nothing_fails_while_a_daemon_that_fits_lives(transactional_db, tmp_path, request):
    """G2: forward, and where there is time back and forward again; each look names what would fail.

    The look is that before the switch.
    """
    with Rolling(tmp_path) as rolling:
        rolling.roll(is_back_too=not request.config.option.short)
