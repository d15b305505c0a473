"""Shorter delays of what fits no daemon, so that a test does not wait for minutes."""

import os
from datetime import timedelta


def hurry():
    """Shorten the delays in this process, if the environment says so."""
    from atp.store import misfits

    if os.environ.get("ATP_DEPLOYS_HURRY"):
        misfits.FIRST_MISFIT, misfits.LONGEST_MISFIT = timedelta(seconds=0.2), timedelta(seconds=1)
