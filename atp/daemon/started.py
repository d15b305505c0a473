"""Sending the signal process_started, which tells the project that a daemon's process began."""

from .. import signals
from . import journal


def tell_started(role):
    """Send process_started to its receivers, and log those that fail."""
    try:
        told = signals.process_started.send_robust(sender=None, role=role)
    except BaseException as error:
        told = [(None, error)]
    for _, error in told:
        if isinstance(error, BaseException):
            journal.receiver_failed(role=role, error=error, exc_info=error)
