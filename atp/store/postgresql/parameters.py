"""The parameters of a Type, as the claim statements return them."""

import json
from datetime import timedelta
from functools import lru_cache

from ..values import Parameters


@lru_cache
def parameters_of(text):
    """Return the :class:`Parameters` of a Type from this JSON, and the Type's weight."""
    (
        *(type, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory),
        weight,
    ) = json.loads(text)
    parameters = Parameters(
        type=type,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        max_retries=max_retries,
        backoff=timedelta(seconds=backoff),
        backoff_max=timedelta(seconds=backoff_max),
        max_restarts=max_restarts,
        max_memory=max_memory,
    )
    return parameters, weight
