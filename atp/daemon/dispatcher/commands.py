"""What an operator tells a daemon: quiet, resume, stop. The shutdown, also of an orphan."""

import contextlib
import queue
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ... import messages
from ...commands import REQUESTS, DaemonCommand, Mode, requested_mode
from ...conf import settings
from ...placement import EXECUTOR
from ...states import Event
from ...store import get_store
from .. import descendants, log, protocol
from ..database import DatabaseThread, Results
from ..processes import uptime
from .attempts import Attempts
from .lease import LOOK_AGAIN, Identity
from .recording import Recording

if TYPE_CHECKING:
    from .core import Core

# The end of a dispatcher whose supervisor is dead: it kills all that is left of its daemon.


def end(identity: Identity, sessions: Collection[int], mark: str) -> None:
    """Kill the remaining workers and their processes, and give the Tasks up."""
    log.supervisor_died()
    if descendants.kill_sessions(sessions, mark):
        _give_up_tasks(identity)


def _give_up_tasks(identity: Identity) -> None:
    """Give the Tasks up before the lease is over, since none of them runs here any more (G3)."""
    daemon = identity.current
    if daemon is None or identity.lock:
        return  # the lock becomes free when this process ends
    if EXECUTOR in identity.labels:
        return  # attempts on other hosts may live until the lease runs out
    results: Results = queue.SimpleQueue()
    store = get_store()
    thread = DatabaseThread("atp-leave", store, results, lambda: None)
    why = messages.supervisor_killed()
    thread.submit(
        "leaving",
        lambda: store.daemons.leave(daemon, lost=why),
        None,  # type: ignore[arg-type]
    )
    # If the call takes longer, it ends with this process, and the lease runs out.
    with contextlib.suppress(queue.Empty):
        results.get(timeout=settings.STATEMENT_TIMEOUT)


# Stopping a dispatcher: running tasks get their grace, and ended ones are recorded.

# The exit statuses of a dispatcher; the supervisor takes any other for a death.
DONE, UNDELIVERED, ORPHANED = 0, 4, 5
# After its grace a stopping daemon tries this long to record its results, in seconds.
DELIVERY_GRACE = 10.0
# It logs what it waits for from SOON after the grace, every TELL_UNDELIVERED, in seconds.
SOON, TELL_UNDELIVERED = 1.0, 3.0


class Stopping:
    """The stop of the dispatcher, which waits until the calls of the ``threads`` have ended."""

    def __init__(
        self,
        core: "Core",
        threads: tuple[DatabaseThread, DatabaseThread],
        attempts: Attempts,
        daemon_commands: "DaemonCommands",
        recording: Recording,
    ) -> None:
        self._core = core
        self._threads = threads
        self._attempts = attempts
        self._daemon_commands = daemon_commands
        self._recording = recording
        self._at: float | None = None
        # Whether the daemon has given up its row.
        self.has_left = False

    @property
    def is_stopping(self) -> bool:
        return self._at is not None

    def stop(self, grace: float) -> None:
        """Claim nothing more; give running tasks ``grace`` seconds, then hand them back."""
        at = uptime() + grace
        self._at = at if self._at is None else min(self._at, at)
        self._daemon_commands.stop()

    def turn(self) -> int | None:
        """Go on with stopping; return the exit status when it is over, else None."""
        if self._at is None:
            return None
        core, (claimer, recorder) = self._core, self._threads
        over = uptime() - self._at
        if over >= 0 and len(core.pool):
            self._attempts.ending.ask_all(Event.RELEASE, messages.daemon_stopping())
        if over >= 0 and core.timers.due("undelivered", TELL_UNDELIVERED):
            self._tell_undelivered(over)
        if len(core.pool) or len(core.unrecorded) or recorder.busy:
            if over <= DELIVERY_GRACE:
                return None
            log.undelivered(count=len(core.unrecorded))
            return UNDELIVERED
        if core.identity.current is None:
            # Without an identity there is no row to give up; the lease runs out by itself.
            return DONE
        if over > DELIVERY_GRACE:
            return DONE  # another session has locked the daemon's row
        if not claimer.busy and core.timers.passed("leave"):
            self._recording.leave(self._left)
        return None

    def _tell_undelivered(self, over: float) -> None:
        """Log why a stopping daemon has not ended yet."""
        if over < SOON:
            return  # most daemons end before that
        claimer, recorder = self._threads
        doing = recorder.doing or claimer.doing
        if doing:
            left = max(0.0, DELIVERY_GRACE - over)
            log.delivering(doing=doing, count=len(self._core.unrecorded), seconds=left)

    def is_drained(self) -> bool:
        """Tell whether this daemon has nothing left to do with what it has claimed."""
        return (
            not len(self._core.pool)
            and not len(self._core.unrecorded)
            and not any(thread.busy for thread in self._threads)
        )

    def _left(self, has_left: bool) -> None:
        self.has_left = has_left
        self._core.timers.later("leave", LOOK_AGAIN)


# The commands to this daemon (go quiet, resume, stop), and its mode.

ASKED = "it was told to"


class DaemonCommands:
    """The part of the dispatcher that obeys the request in the daemon's row.

    ``request`` is the last request, also from the time of an earlier dispatcher or identity.
    The request is taken from renewals and joins alone, which come one after another. A request
    that an outlook has seen only makes the next renewal come soon.
    """

    def __init__(self, core: "Core", attempts: Attempts, request: str = "") -> None:
        self._core = core
        self._attempts = attempts
        self._tell: Callable[[Any], None] = core.tell
        self.request = REQUESTS[DaemonCommand.RESUME]
        self.mode: Mode = Mode.RUNNING
        self.obey(request)

    def obey(self, request: str) -> None:
        """Obey the request in the daemon's row, unless it is known or the daemon stops."""
        if request == self.request or self.mode is Mode.STOPPING:
            return
        self.request = request
        # The next dispatcher has to know the request, even if the row is gone by then.
        self._tell(protocol.Ordered(request))
        mode = requested_mode(request)
        if mode is Mode.STOPPING:
            # The supervisor decides, as after a signal, and tells the dispatcher to stop.
            self._tell(protocol.StopWanted(ASKED))
        elif mode is not self.mode:
            self.mode = mode
            (self._go_quiet if mode is Mode.QUIET else self._resume)()

    def joined(self, request: str) -> None:
        """Obey the request in the daemon's new row."""
        self.obey(request)

    def hint(self, request: str | None) -> None:
        """Renew soon if the request that an outlook has seen is new; None: there is no row."""
        if request is not None and request != self.request:
            self._core.timers.now("renew")

    def stop(self) -> None:
        """Start no more tasks, for good, and hand back the unstarted ones."""
        self.mode = Mode.STOPPING
        self._hand_back(messages.daemon_stopping())

    def keep(self) -> None:
        """In quiet mode, hand back Tasks that have come in all the same; called at every turn."""
        if self.mode is Mode.QUIET:
            self._attempts.hand_back_waiting(self._attempts.stopping)

    def _go_quiet(self) -> None:
        log.went_quiet()
        self._hand_back(messages.daemon_quiet())

    def _hand_back(self, why: str) -> None:
        """Start no more tasks, and hand back the unstarted ones."""
        self._attempts.stopping = why
        self._attempts.hand_back_unstarted(why)
        if EXECUTOR in self._core.identity.labels:
            self._attempts.ending.ask_unbegun(why)

    def _resume(self) -> None:
        log.resumed()
        self._attempts.stopping = ""
        self._core.queue.call()
