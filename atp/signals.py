"""Signals that ATP sends, each with the Instance's facts as keyword arguments."""

from django.dispatch import Signal

#: Sent where an Instance is enqueued, when it has been written: inside the transaction of the
#: caller, if there is one. Argument: ``instance``; the sender is its class. Not for what was there
#: already, nor for what ATP itself writes: nodes of graphs, slots of schedules, and hooks.
enqueued = Signal()
#: Sent in the worker process before a handler is called. Arguments: ``context``, and ``claimed``:
#: what had been claimed.
handler_started = Signal()
#: Sent in the worker process after a handler. Arguments: ``context``, ``claimed``, ``exception``
#: (None when the handler returned, or spoke to ATP), and ``outcome``: the end that the handler
#: brought about. No worker is left to send it where that was killed, or where no handler ran: a
#: hook is enqueued with every end.
handler_ended = Signal()
#: Sent in each process of a daemon when it begins, after its fork. Argument: ``role``, which is
#: "supervisor", "log" (the process that calls the project's log handlers for the supervisor),
#: "dispatcher" or "worker". Threads that a receiver starts live in that process, but the supervisor
#: is to have none: it forks the others.
process_started = Signal()
