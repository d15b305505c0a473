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
supervisor asks the worker for its stack and waits for the answer, BEFORE_KILL seconds at most. It
stops the worker (SIGSTOP), and looks whether it still runs this attempt: if not, the worker goes
on. Otherwise it kills the worker (SIGKILL), and then the processes that its handler has started
(``Supervisor._on_death``). It tells the dispatcher by WorkerDied, with the reason, and forks
another worker. The dispatcher (``Deaths`` in ``dispatcher/workers.py``) records the stack, and the
loss of the attempt (EXPIRE). The store counts a restart and a loss, and puts the Instance back
into the queue; one that was lost too often becomes FAILED, STALE (:func:`atp.states.is_stale`). A
time-out uses up no retry. The attempts that this worker had not started go to other workers. If
the start of one was recorded before (that of a transactional Type is, and of an Instance that was
lost before), it goes back to the queue.

**A running attempt is cancelled.** Whoever cancels writes a request into the Task. The dispatcher
reads the requests for the Tasks that it holds every AT_LEAST_EVERY seconds (``ReadCommands`` in
``dispatcher/maintenance.py``). ``Ending`` in ``dispatcher/attempts.py`` then does three things at
once: it marks the attempt in the shared memory, where the handler's ``context`` sees it; it has
the supervisor send the signal that raises Interrupted in the handler
(``worker/interruption.py``); and it notes when the grace is over, which counts from the request
(``cancel_grace`` of the Type, or else the setting CANCEL_GRACE). If the handler ends by
Interrupted or by another error, the Instance becomes FAILED, CANCELLED; if it returns all the
same, FINISHED. If it goes on after the grace, the supervisor kills its worker in the same way as
after a time-out, but ``Deaths`` records FAILED, CANCELLED instead of a loss. A worker whose
handler was interrupted runs nothing more: another takes its place. An attempt that its worker has
not started is handed back, and the store cancels its Instance.

**The lease is lost.** A daemon holds Tasks under an identity: a uuid with a row in the database,
whose lease it renews every RENEW_EVERY seconds (``dispatcher/lease.py``). Two things can happen to
it, the second because of the first or alone. All three times are settings.

- The identity is given up (``Identity.lose``), because the daemon is not sure any more what it
  holds: the store raised LeaseLost, since another daemon has taken Tasks of this one; a call to
  the database failed, other than by a lock; or a Move was refused unexpectedly. The workers run
  on, and nothing is handed out. The daemon tries to join under a new identity until it can
  (``Membership``), and says which attempts it holds. Those that nobody has taken move to the new
  identity. It kills the workers that run another's Task (``Attempts.reconcile`` in
  ``dispatcher/attempts.py``). Tasks that another session has locked are settled later.
- The lease is over: KILL_AFTER seconds have passed since the daemon sent the last renewal that
  was acknowledged. The supervisor, which is told of each, kills all workers
  (``Supervisor._enforce_lease``), and forks others. Their attempts are lost as by a time-out, as
  soon as that can be recorded. Other daemons take the Tasks after LEASE, which is longer: so no
  attempt runs twice at once. On SQLite the lease is a lock on a file, which is not over while a
  process of the daemon lives.

Ends that are not recorded stay in memory until the daemon has joined again
(``UnrecordedChanges`` in ``dispatcher/recording.py``). Those of attempts that moved are recorded
under the new identity; those of others are refused by the fence, and logged as refused.
"""
