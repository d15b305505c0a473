"""The parts of a daemon, and of the store, that tests of this folder look into."""

# ruff: noqa: F401
from atp.daemon import descendants as abandoned
from atp.daemon import descendants as memory
from atp.daemon import log as journal
from atp.daemon import log_process as log_thread
from atp.daemon import processes
from atp.daemon.database import DatabaseThread
from atp.daemon.descendants import MARK, MemoryWatch
from atp.daemon.dispatcher import claiming, maintenance, pool
from atp.daemon.dispatcher import claiming as wakeups
from atp.daemon.dispatcher import pool as hand_out
from atp.daemon.dispatcher import reader as pool_statistics
from atp.daemon.dispatcher import workers as stuck_workers
from atp.daemon.dispatcher.attempts import STOP_GRACE, Attempts
from atp.daemon.dispatcher.capacity import Capacity
from atp.daemon.dispatcher.claiming import PIECE, Caution, Claiming, Wakeups
from atp.daemon.dispatcher.commands import DELIVERY_GRACE
from atp.daemon.dispatcher.core import Core, QueueState
from atp.daemon.dispatcher.dispatcher import AGAIN, MOST, Intake
from atp.daemon.dispatcher.downstreams import SOONEST, Downstreams
from atp.daemon.dispatcher.jobs import Count, CountFailures, Trim
from atp.daemon.dispatcher.lease import Identity
from atp.daemon.dispatcher.maintenance import LONG, Drop, Miss, Plan, Portion, Sweep
from atp.daemon.dispatcher.pool import STEAL_AFTER, Pool, Room, WorkerLink
from atp.daemon.dispatcher.reader import Misfits, Reader, UsageMeter
from atp.daemon.dispatcher.recording import BATCH, UnrecordedChanges
from atp.daemon.dispatcher.workers import KILL_AFTER, TAKE_BACK_AFTER, StuckWorkers, WorkerChanges
from atp.daemon.folders import DaemonFolders
from atp.daemon.log_handlers import Complaints
from atp.daemon.log_process import LogThread
from atp.daemon.options import Options, hostname
from atp.daemon.outcomes import Kind, Outcome, move
from atp.daemon.processes import Timers, uptime
from atp.daemon.protocol import (
    Channel,
    Closed,
    Ended,
    Inherited,
    Kill,
    Logged,
    Look,
    Retiring,
    WorkerDied,
    packed_end,
    unpacked_end,
)
from atp.daemon.shared_memory import NEVER, Page, Ring, Running, Tokens
from atp.daemon.stacks import Looks, StackFiles
from atp.daemon.stderr import NonBlockingHandler, NonBlockingStream
from atp.daemon.supervisor import worker_processes as worker_output
from atp.daemon.supervisor.worker_processes import EVERY, RATE, WorkerOutput, marked
from atp.daemon.worker import execution, leftovers
from atp.daemon.worker import isolation as logs
from atp.daemon.worker.interruption import SIGNAL, Interruption
from atp.daemon.worker.isolation import ENTRIES, Entry, ProcessState
from atp.daemon.worker.leftovers import Leftovers, Unkillable
from atp.daemon.worker.loops import Loop
from atp.daemon.worker.transactions import Connections
from atp.daemon.worker.worker import Worker
from atp.store.common import enqueueing as handover
from atp.store.common.incompatible import is_misfit
from atp.store.common.turns import ClaimMemory
