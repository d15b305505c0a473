"""The signals that ATP sends, with facts about the Instance or process as keyword arguments."""

from django.dispatch import Signal

#: Sent by the enqueuing process after an Instance has been written: inside the transaction of the
#: caller, if there is one. Argument: ``instance``; the sender is its class. It is not sent for an
#: existing Instance, nor for those that ATP itself writes: nodes, slots of schedules, and hooks.
enqueued = Signal()
#: Sent in the worker process before a handler is called. Arguments: ``context``, and ``claimed``,
#: the claimed Task as a value.
handler_started = Signal()
#: Sent in the worker process after a handler. Arguments: ``context``, ``claimed``, ``exception``
#: (None when the handler returned, or raised an exception of ATP), and ``outcome``: the end that
#: the handler brought about. It is not sent if the worker was killed or no handler ran; a
#: hook, in contrast, is enqueued with every end.
handler_ended = Signal()
#: Sent in each process of a daemon when it begins, after its fork. Argument: ``role``, which is
#: "supervisor", "log" (the process that calls the project's log handlers for the supervisor),
#: "dispatcher" or "worker". Threads that a receiver starts live in that process. In the supervisor
#: it must start none, because the supervisor forks the other processes.
process_started = Signal()
