"""A short form of ``python -m tests.deploys``, which tests rolling deploys (docs/deploying.md)."""

import pytest

from .rolling import Rolling


@pytest.mark.slow
@pytest.mark.processes
def test_no_task_fails_while_a_compatible_daemon_lives(transactional_db, tmp_path, request):
    """Roll forward, and in long runs back and forward again (G2).

    Before each switch the check must name all inputs that would fail.
    """
    with Rolling(tmp_path) as rolling:
        rolling.roll(is_back_too=not request.config.option.short)
