"""Overload: enqueues are refused where too many wait already (``max_waiting``, ``max_wait``)."""
