"""What ``python -m demo_project`` shows: processes, progress, and what came of it."""


class DemoError(Exception):
    """The demo cannot go on; the message says why, for who started it."""
