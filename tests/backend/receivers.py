"""Receivers of the signals of django.tasks and of its backport."""

from contextlib import contextmanager

from atp.backend.frameworks import signals


@contextmanager
def receiving(**receivers):
    """Connect receivers to signals, which are named without ``task_``."""
    pairs = [(s, each) for name, each in receivers.items() for s in signals(f"task_{name}")]
    for signal, receive in pairs:
        signal.connect(receive)
    try:
        yield
    finally:
        for signal, receive in pairs:
            signal.disconnect(receive)
