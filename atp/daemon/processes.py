"""What the daemon needs of the operating system: clocks, deaths and descendants."""

import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

logger = logging.getLogger("atp.daemon")

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# A clock that goes on while the host is suspended: a lease does too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime():
    """Return seconds on a clock that never steps and that all processes of the host share."""
    return time.clock_gettime(_CLOCK)


def _prctl(option, value):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def die_with_parent(parent, signum):
    """Have the kernel send ``signum`` when the parent dies; False if it is dead already.

    Elsewhere than on Linux the caller has to look at ``os.getppid()`` itself.
    """
    if LINUX:
        _prctl(_PR_SET_PDEATHSIG, signum)
    return os.getppid() == parent


def adopt_descendants():
    """Become the parent of descendants whose own parent dies (a subreaper; Linux only)."""
    if LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def fork(child):
    """Fork a child that runs ``child(parent's pid)`` in a session of its own; returns its pid.

    What it returns is its exit status; 1 if it raises.
    """
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads, and counts those that numerical libraries
        # start when they are imported, which handle forks themselves.
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


def ignore(signum, frame):
    """Handle a signal by doing nothing. Unlike SIG_IGN it is not inherited by programs."""


def _table():
    """Yield ``(pid, parent, session)`` of every process; nothing where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything: what follows its end is regular.
            _, _, rest = entry.read_text().rpartition(")")
            state, parent, _group, session = rest.split()[:4]
            if state not in "ZX":
                yield int(entry.parent.name), int(parent), int(session)


def children(pid):
    """Return the living children of a process."""
    return [child for child, parent, _ in _table() if parent == pid]


def kill(pid, signum=signal.SIGKILL):
    """Send a signal; no error if the process is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


# Programs that a handler starts inherit this, with the name of their daemon.
MARK = "ATP_DAEMON"


def _is_marked(pid, mark):
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def kill_sessions(sessions, mark=""):
    """Kill every process of these sessions, or with this mark, until none is left.

    Gives up after a second: what is in an uninterruptible sleep dies when it wakes.
    """
    sessions = set(sessions)
    if not LINUX:
        for session in sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        members = [
            pid
            for pid, _, session in _table()
            if session in sessions or (mark and _is_marked(pid, mark))
        ]
        if not members:
            return
        for pid in members:
            kill(pid)
        time.sleep(0.005)


def kill_unknown_children(known, reaped):
    """Kill and reap every child of this process that is not ``known``.

    They are what a dead worker has left behind: as a subreaper this process
    has inherited them. Those of ours that end meanwhile are reported to
    ``reaped(pid, status)``. Returns how many were killed; gives up after a second.
    """
    killed = set()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        strangers = [pid for pid in children(os.getpid()) if pid not in known]
        if not strangers:
            break
        for pid in strangers:
            kill(pid)
            killed.add(pid)
        time.sleep(0.002)
        reap(reaped)
    return len(killed)


def reap(reaped):
    """Report every child that has ended to ``reaped(pid, status)``, status as from waitpid."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        reaped(pid, status)


def describe_status(status):
    """Say how a process ended: "died by SIGKILL", "exited with status 3"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"died by {signal.Signals(-code).name}"
    except ValueError:
        return f"died by signal {-code}"


def resident_bytes():
    """Return the memory that this process has resident, in bytes; 0 where unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def allow_descriptors(number):
    """Raise this process's soft limit on open files, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def title(name):
    """Name this process for ps and top, as far as that is cheap (15 characters, Linux)."""
    if LINUX:
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(name[:15])
