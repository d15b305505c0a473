"""Telling the project that a process of a daemon has begun: the signal process_started."""

from .. import signals
from . import journal


def tell_started(role):
    """Call the receivers. One that fails is logged, and costs nothing more."""
    try:
        told = signals.process_started.send_robust(sender=None, role=role)
    except BaseException as error:
        told = [(None, error)]
    for _, error in told:
        if isinstance(error, BaseException):
            journal.receiver_failed(role=role, error=error, exc_info=error)
