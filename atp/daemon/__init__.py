"""Running Tasks: the processes of ``manage.py atpd``.

Read this first: it names the modules in which each of these goes on.

**An attempt, from its claim to its recorded end.** The dispatcher claims the Task
(``dispatcher/claiming.py``): the store returns an :class:`~atp.store.values.Attempt`, which the
dispatcher holds until the end is recorded. ``dispatcher/pool.py`` chooses a worker, packs the
attempt (``protocol.py``) and sends it. The worker takes its start token, writes into the shared
memory that it runs this attempt, until when it may, and how much memory it may use
(``worker/worker.py``), runs the handler (``worker/execution.py``) and reports an Outcome
(``outcomes.py``) through its ring. ``dispatcher/reader.py`` makes a Move of the Outcome, and
``dispatcher/recording.py`` writes Moves in batches. The supervisor has no database and no thread:
it forks, reaps and kills.

**A worker is killed by its time-out.** The worker wrote the deadline of its attempt into the
shared memory. The supervisor reads it in every turn, at least every TURN seconds
(``WorkerProcesses.enforce_limits`` in ``supervisor/worker_processes.py``). If it has passed, the
supervisor asks the worker for its stack, waits for the answer BEFORE_KILL seconds at most, stops
the worker (SIGSTOP), looks whether it still runs this attempt, and kills it (SIGKILL), then the
processes that its handler has started. It tells the dispatcher by WorkerDied, with the reason, and
forks another worker. The dispatcher (``Deaths`` in ``dispatcher/workers.py``) records the stack
and the Move EXPIRE. The store counts a restart and a loss, and puts the Instance back into the
queue; one that was lost too often becomes FAILED (:func:`atp.states.is_stale`). A time-out uses up
no retry. The attempts that this worker had not started go to other workers; one whose start is
recorded already is handed back to the queue.

**A running attempt is cancelled.** Whoever cancels writes a request into the Task. The dispatcher
reads the requests for the Tasks that it holds every AT_LEAST_EVERY seconds (``ReadAsks`` in
``dispatcher/maintenance.py``). ``Ending`` in ``dispatcher/attempts.py`` then does three things at
once: it marks the attempt in the shared memory, where the handler's ``context`` sees it; it has the
supervisor send the signal that raises Interrupted in the handler (``worker/interruption.py``); and
it notes when the grace is over (``cancel_grace`` of the Type, or settings.ATP's CANCEL_GRACE). A
handler that ends by Interrupted or by another error becomes FAILED with the reason CANCELLED; one
that returns all the same becomes FINISHED. If it goes on after the grace, the supervisor kills its
worker as after a time-out, and ``Deaths`` records CANCELLED. A worker whose handler was
interrupted runs nothing more: another takes its place. An attempt that has not started is handed
back, and the store cancels its Instance.

**The lease is lost.** A daemon holds Tasks under an identity, a uuid with a row in the database,
whose lease it renews every RENEW_EVERY seconds (``Renewal`` in ``dispatcher/lease.py``).

- It could not renew: when KILL_AFTER seconds have passed since the last renewal was sent, the
  dispatcher hands out nothing more (``Identity.leased``), and the supervisor, which is told of
  each renewal, kills all workers (``Supervisor._enforce_lease``). LEASE, which the other daemons
  wait for before they take the Tasks, is longer: so no attempt runs twice at once.
- Its identity has ended, since another daemon has taken its Tasks: the store raises LeaseLost.
  Every other failure of the database, and a Move that is refused unexpectedly, has the same
  consequence, as the daemon cannot know any more what it holds (``Membership`` in
  ``dispatcher/lease.py``). The workers run on. The daemon joins under a new identity and says
  which attempts it holds; those that are still its own move to the new identity. It kills the
  workers that run another's Task (``Attempts.reconcile`` in ``dispatcher/attempts.py``).

Ends that are not recorded stay in memory until then (``UnrecordedChanges`` in
``dispatcher/recording.py``). Those of attempts that moved are recorded under the new identity;
those of others are refused by the fence, and logged as refused.
"""
