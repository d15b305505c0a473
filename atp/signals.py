"""The signals that ATP sends. Receivers get all arguments as keyword arguments."""

from django.dispatch import Signal

#: The enqueuing process sends this signal after it has written an Instance, inside the transaction
#: of the caller, if there is one. Argument: ``instance``; the sender is its class. The signal is
#: not sent for an existing Instance, nor for an Instance that ATP itself enqueues, such as a node
#: of a graph, a slot of a schedule, or a hook.
enqueued = Signal()
#: A worker process sends this signal before it calls a handler. Arguments: ``context``, and
#: ``attempt``, what the claim has said about it.
handler_started = Signal()
#: A worker process sends this signal after a handler has ended. Arguments: ``context``,
#: ``attempt``, ``exception`` (None if the handler returned, or raised an exception of ATP), and
#: ``outcome``, which says how the handler ended. The signal is not sent if the worker was killed or
#: no handler ran. A hook, in contrast, is enqueued at every end.
handler_ended = Signal()
#: Each process of a daemon sends this signal when it begins, after its fork. Argument: ``role``,
#: which is "supervisor", "log" (the process that calls the project's log handlers for the
#: supervisor), "dispatcher", "worker" (a loop, too) or "follower". Threads that a receiver starts
#: live in that process. In the supervisor a receiver must not start threads, because it forks the
#: other processes.
process_started = Signal()
