"""Processes and their clocks: forks, deaths, timers."""

import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

# The daemon's use of the operating system: clocks, forks and deaths of processes.

logger = logging.getLogger("atp.daemon")

LINUX = sys.platform == "linux"
# The signals that stop a daemon.
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

# A clock that goes on while the host is suspended, as a lease does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# Return seconds on a clock that never steps and that all processes of the host share. It is called
# several times for every attempt: this is quicker than a function of Python.
uptime: Callable[[], float] = partial(time.clock_gettime, _CLOCK)


def _prctl(option: int, value: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def die_with_parent(parent: int, signum: int) -> bool:
    """Make the kernel send ``signum`` when the parent dies; return False if it is dead already.

    On other systems than Linux the caller has to watch ``os.getppid()`` itself.
    """
    if LINUX:
        _prctl(_PR_SET_PDEATHSIG, signum)
    return os.getppid() == parent


def adopt_descendants(adopts: bool = True) -> None:
    """Set whether this process adopts descendants whose own parent dies (Linux only)."""
    if LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, int(adopts))


def adopts_descendants() -> bool:
    """Tell whether this process adopts descendants whose own parent dies."""
    if not LINUX:
        return False
    adopts = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts))
    return bool(adopts.value)


def fork(child: Callable[[int], int]) -> int:
    """Fork a child that runs ``child(parent's pid)`` in a session of its own; return its pid.

    The child exits with the status that ``child`` returns, or with 1 if it raises.
    """
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of forks while threads run. It also counts the threads of numerical
        # libraries, which handle forks themselves.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        status = child(parent)
    except BaseException:
        logger.critical("process %d failed", os.getpid(), exc_info=True)
    finally:
        os._exit(status)


def exit_within(seconds: float, status: int) -> None:
    """Exit this process with ``status`` after ``seconds``, if it has not ended by then."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(status)

    threading.Thread(target=end, name="atp-exit", daemon=True).start()


def ignore_stops() -> None:
    """Ignore the signals that stop a daemon, in the exit of its process.

    Python gives up its own handlers early in its exit. After that such a signal would end the
    process, with another status. And whoever was to be woken by signals is gone: Python would
    complain of each that still comes.
    """
    signal.set_wakeup_fd(-1)
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def ignore(signum: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing. Unlike SIG_IGN, programs do not inherit this."""


def kill(pid: int, signum: int = signal.SIGKILL) -> None:
    """Send a signal; do nothing if the process is gone or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def reap(reaped: Callable[[int, int], None]) -> None:
    """Reap all children that have ended; call ``reaped(pid, wait status)`` for each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        reaped(pid, status)


def describe_status(status: int) -> str:
    """Return how a process ended, in words: "was ended by SIGSEGV", "exited with status 3"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with status {code}"
    return f"was ended by {cause_of(status)}{_MEANINGS.get(-code, '')}"


def cause_of(status: int) -> str:
    """Return the cause of a process's end, as data: "SIGSEGV", "status 3"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


_MEANINGS: dict[int, str] = {
    signal.SIGKILL: ", sent by another process or, when memory ran out, by the kernel",
    signal.SIGSEGV: " (invalid memory access)",
    signal.SIGBUS: " (invalid memory access)",
    signal.SIGABRT: " (abort)",
    signal.SIGFPE: " (arithmetic error)",
    signal.SIGILL: " (illegal instruction)",
}


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process, in bytes; 0 if unknown."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill_thread(pid: int, thread: int, signum: int) -> None:
    """Send a signal to one thread of a process; do nothing if the thread is gone.

    If the system's library does not offer that, send it to the process, which handles it in its
    main thread.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "tgkill"):
        library.tgkill(pid, thread, signum)
    elif thread == pid:
        kill(pid, signum)


def threads(pid: int) -> list[int]:
    """Return the identifiers of a process's threads, its main thread first."""
    try:
        found = map(int, os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return [pid]
    return [pid, *sorted(set(found) - {pid})]


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used since its start; 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def signal_masks(pid: int, thread: int) -> tuple[int, ...]:
    """Return the signals of a thread: pending, blocked, caught; each as a set of bits.

    Bit 0 is for signal 1. All sets are empty if unknown, or if the thread is gone.
    """
    try:
        text = Path(f"/proc/{pid}/task/{thread}/status").read_text("ascii", "replace")
    except OSError:
        return 0, 0, 0
    values = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Sig"))
    return tuple(int(values[name], 16) for name in ("SigPnd", "SigBlk", "SigCgt"))


def allow_descriptors(number: int) -> None:
    """Raise this process's soft limit on open files, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


# An addition to the kernel's out-of-memory score, which goes up to 1000.
_RATHER_THAN_OTHERS = 500


def go_first() -> None:
    """Make the kernel kill this process and its children first when memory runs out (Linux)."""
    score = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        score.write_text(str(min(int(score.read_text()) + _RATHER_THAN_OTHERS, 1000)))


def title(name: str) -> None:
    """Set the name of this process for ps and top (Linux; 15 characters at most)."""
    if LINUX:
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(name[:15])


def current_title() -> str:
    """Return the name of this process for ps and top; empty if unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/comm").read_text().rstrip("\n")
    return ""


# Timers by name, on the uptime clock.


class Timers:
    """A set of timers by name. A timer that was never set is due at once."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def due(self, name: str, every: float, early: float = 0.0) -> bool:
        """Tell whether the timer is due; if so, set it to ``every`` seconds from now.

        The timer counts as due up to ``early`` seconds before its time, so that a loop that is
        awake anyway need not wake up again for it.
        """
        now = uptime()
        if now + early < self._next.get(name, 0):
            return False
        self._next[name] = now + every
        return True

    def passed(self, name: str, early: float = 0.0) -> bool:
        """Tell whether the timer is due, or will be in ``early`` seconds; do not set it again."""
        return uptime() + early >= self._next.get(name, 0)

    def later(self, name: str, seconds: float) -> None:
        """Set the timer to ``seconds`` from now."""
        self._next[name] = uptime() + seconds

    def now(self, name: str) -> None:
        """Make the timer due at once."""
        self._next[name] = 0

    def pause(self, longest: float) -> float:
        """Return the time until the next timer is due, in seconds, ``longest`` at most."""
        now = uptime()
        return max(0.0, min([longest, *(at - now for at in self._next.values() if at > now)]))
