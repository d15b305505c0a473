"""The parts of a daemon, and of the store, that tests of this folder look into."""

# ruff: noqa: F401
from atp.daemon import journal
from atp.daemon.chores import chore
from atp.daemon.chores.chore import LONG, Portion
from atp.daemon.chores.counting import Count, CountFailures
from atp.daemon.chores.dropping import Drop
from atp.daemon.chores.missing import Miss
from atp.daemon.chores.planning import Plan
from atp.daemon.chores.sweeping import Sweep
from atp.daemon.chores.trimming import Trim
from atp.daemon.dispatcher import claiming, wakeups
from atp.daemon.dispatcher.caution import Caution
from atp.daemon.dispatcher.claiming import Claiming
from atp.daemon.dispatcher.core import Core
from atp.daemon.dispatcher.database_thread import DatabaseThread
from atp.daemon.dispatcher.intake import AGAIN, MOST, Intake
from atp.daemon.dispatcher.queue_state import QueueState
from atp.daemon.dispatcher.stopping import DELIVERY_GRACE
from atp.daemon.dispatcher.unrecorded import BATCH, UnrecordedChanges
from atp.daemon.dispatcher.wakeups import PIECE, Wakeups
from atp.daemon.membership.identity import Identity
from atp.daemon.options import Options, hostname
from atp.daemon.pool import hand_out, pool, stuck_workers
from atp.daemon.pool import statistics as pool_statistics
from atp.daemon.pool.attempts import Attempts
from atp.daemon.pool.deaths import Deaths
from atp.daemon.pool.downstreams import SOONEST, Downstreams
from atp.daemon.pool.ending import STOP_GRACE
from atp.daemon.pool.misfits import Misfits
from atp.daemon.pool.pool import STEAL_AFTER, Pool
from atp.daemon.pool.reader import Reader
from atp.daemon.pool.statistics import UsageMeter
from atp.daemon.pool.stuck_workers import KILL_AFTER, TAKE_BACK_AFTER, StuckWorkers
from atp.daemon.pool.worker_link import WorkerLink
from atp.daemon.shared.channel import Channel, Closed
from atp.daemon.shared.inherited import Inherited
from atp.daemon.shared.messages import Ended, Kill, Logged, Look, Retiring
from atp.daemon.shared.outcome import Kind, Outcome, move
from atp.daemon.shared.packing import packed_end, unpacked_end
from atp.daemon.shared.ring import Ring
from atp.daemon.shared.running_page import NEVER, Page, Running
from atp.daemon.shared.stacks import StackFiles
from atp.daemon.shared.tokens import Tokens
from atp.daemon.sinks import log_thread
from atp.daemon.sinks.log_thread import LogThread
from atp.daemon.supervisor import worker_output
from atp.daemon.supervisor.looks import Looks
from atp.daemon.supervisor.output_lines import marked
from atp.daemon.supervisor.worker_output import EVERY, RATE, WorkerOutput
from atp.daemon.system import abandoned, memory, processes
from atp.daemon.system.descendants import MARK
from atp.daemon.system.folders import DaemonFolders
from atp.daemon.system.memory import MemoryWatch
from atp.daemon.system.processes import uptime
from atp.daemon.system.stderr import NonBlockingHandler, NonBlockingStream
from atp.daemon.system.timers import Timers
from atp.daemon.worker import execution
from atp.daemon.worker.connections import Connections
from atp.daemon.worker.interruption import SIGNAL, Interruption
from atp.daemon.worker.isolation import leftovers, logs
from atp.daemon.worker.isolation.entries import ENTRIES
from atp.daemon.worker.isolation.entry import Entry
from atp.daemon.worker.isolation.leftovers import Leftovers, Unkillable
from atp.daemon.worker.isolation.process_state import ProcessState
from atp.daemon.worker.worker import Worker
from atp.store.common import enqueueing as handover
from atp.store.common.incompatible import is_misfit
from atp.store.common.turns import ClaimMemory
