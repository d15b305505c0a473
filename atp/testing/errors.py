"""The errors of the testing kit. A failed assertion is an AssertionError."""

from ..exceptions import ATPError


class NotPossible(ATPError):
    """The test asks for something impossible here, such as a daemon inside its transaction."""


class EndlessDrain(ATPError):
    """More than ``most`` attempts were due: a task enqueues itself, or there are many tasks."""


class DaemonFailed(ATPError):
    """The daemon of a test did not start, or has ended by itself; the message has its log."""
