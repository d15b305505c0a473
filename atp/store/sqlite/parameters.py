"""The parameters of a Type, as a claim reads them."""

from datetime import timedelta

from ..values import Parameters

COLUMNS = """
    type.identifier, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory
"""


def parameters_of(type, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory):
    """Return :class:`Parameters` from the columns of a Type."""
    return Parameters(
        type=type,
        timeout=_duration(timeout),
        max_retries=max_retries,
        backoff=_duration(backoff),
        backoff_max=_duration(backoff_max),
        max_restarts=max_restarts,
        max_memory=max_memory,
    )


def _duration(microseconds):
    return None if microseconds is None else timedelta(microseconds=microseconds)
