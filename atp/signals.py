"""Signals that ATP sends, each with the Instance's facts as keyword arguments."""

from django.dispatch import Signal

# Sent in the worker process around a handler. Arguments: ``context``.
handler_started = Signal()
# Arguments: ``context``, and ``exception`` (None when the handler returned).
handler_ended = Signal()
