"""Shortens the delays for inputs that fit no daemon, so that tests do not wait for minutes."""

from datetime import timedelta

from atp.store.common import incompatible

incompatible.FIRST_MISFIT = timedelta(seconds=0.2)
incompatible.LONGEST_MISFIT = timedelta(seconds=1)
