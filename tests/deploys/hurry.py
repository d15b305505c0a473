"""Shortens the delays for inputs that fit no daemon, so that tests do not wait for minutes."""

import os
from datetime import timedelta


def hurry():
    """Shorten the delays in this process if the environment variable is set."""
    from atp.store.common import incompatible

    if os.environ.get("ATP_DEPLOYS_HURRY"):
        incompatible.FIRST_MISFIT, incompatible.LONGEST_MISFIT = (
            timedelta(seconds=0.2),
            timedelta(seconds=1),
        )
