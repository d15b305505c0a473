"""Processes that a dead daemon of this host has left running. Linux only.

Workers die with their supervisor, and the dispatcher kills the processes that they have
started. If supervisor and dispatcher are killed together, only another daemon can kill those
processes, before it takes the dead daemon's Tasks away (G3).
"""

import contextlib
import os

from . import descendants, processes
from .descendants import MARK

# The process name of workers and of their forks. Programs that they start have other names.
_WORKER = "atpd-worker"


def mark(name):
    """Return the mark for programs below this process, which is their supervisor."""
    return f"{name}/{_namespace()}/{os.getpid()}/{_start(os.getpid())}"


def end():
    """Kill the processes of dead workers whose supervisor is dead too; return their number.

    Processes of other users are left alone.
    """
    if not processes.LINUX:
        return 0
    killed, _ = descendants.end(_found, lambda: None)
    return len(killed)


def _found():
    table = descendants.table()

    def is_alive(pid):
        return pid in table and not table[pid].is_dead

    def is_orphan(each):
        if each.name.startswith(_WORKER):
            return not is_alive(each.session)
        marked = _marked(each.pid)
        return marked is not None and not (is_alive(marked[0]) and _start(marked[0]) == marked[1])

    return {
        pid: each
        for pid, each in table.items()
        if not each.is_dead and _is_ours(pid) and is_orphan(each)
    }


def _is_ours(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _marked(pid):
    """Return the pid and the start of the supervisor in a program's mark; None without a mark.

    A pid says something in its own namespace only: a mark of another container counts as none.
    """
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(MARK.encode() + b"="):
                _, namespace, supervisor, start = entry.decode().rsplit("/", 3)
                return (int(supervisor), start) if namespace == _namespace() else None
    return None


def _namespace():
    """Return the name of the namespace of this process's pids; "" if it cannot be found out."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start(pid):
    """Return the start of a process in the kernel's ticks, as text; "" if there is no process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""
