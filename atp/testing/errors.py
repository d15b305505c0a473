"""The errors of the testing kit. A failed assertion is an AssertionError."""

from ..exceptions import ATPError


class NotPossible(ATPError):
    """What a test asks for cannot be done here: a daemon inside a test's transaction, say."""


class EndlessDrain(ATPError):
    """More attempts were due than ``most``: a task that enqueues itself, or many."""


class DaemonFailed(ATPError):
    """The daemon of a test did not start, or has ended by itself; the message is its log."""
