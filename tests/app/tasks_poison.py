"""Handlers that do harm, each in its own way, and a harmless one that runs next to them."""

import contextlib
import ctypes
import functools
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from atp import Fatal, Interrupted, task_type

from .tasks_daemon import SLEEPER, record, start_sleepers

MIB = 1024 * 1024
# A bound of their own, should the daemon's fail: these run on machines of people.
MOST_MEMORY, LONGEST = 3000 * MIB, 60.0

# Who owns no other process.
NOBODY = 54321

# Takes memory until somebody ends it.
_EAT = f"""
import time
taken = []
while len(taken) < {MOST_MEMORY // (8 * MIB)}:
    taken.append(bytearray(b"x") * (8 << 20))
time.sleep(60)
"""
# Is never the same process for long.
_HOP = f"""
import os, time
os.setsid()
end = time.monotonic() + {LONGEST}
while time.monotonic() < end:
    time.sleep(0.002)
    if os.fork():
        os._exit(0)
"""


@task_type("poison.neighbour", timeout=60)
def neighbour(context, *, path, number):
    """Use a working directory, the PATH, standard output and a child process."""
    subprocess.run(["true"], check=True, cwd=Path.cwd())
    signal.alarm(30)
    print(f"neighbour {number}")
    record(path, event="neighbour", number=number)


def poison(kind, **parameters):
    """Declare a harmful Type, whose handler first writes a line to the record."""

    def decorate(handler):
        @functools.wraps(handler)
        def recorded(context, *, path):
            record(path, event=kind, attempt=context.attempt)
            return handler(context, path)

        return task_type(f"poison.{kind}", **parameters)(recorded)

    return decorate


# Those that end their worker


@poison("exits", max_restarts=1)
def exits(context, path):
    os._exit(7)


@poison("exits_well", max_restarts=1)
def exits_well(context, path):
    os._exit(0)


@poison("crashes", max_restarts=1)
def crashes(context, path):
    ctypes.string_at(0)


@poison("aborts", max_restarts=1)
def aborts(context, path):
    os.abort()


@poison("overflows", max_restarts=1)
def overflows(context, path):
    """Recurse through C code until the stack is exhausted or Python notices."""
    sys.setrecursionlimit(10**6)

    def deeper(_):
        return list(map(deeper, [0]))

    deeper(0)


@poison("closes_everything", max_restarts=1)
def closes_everything(context, path):
    os.closerange(0, 65536)
    raise Fatal("closed everything")


# Those that do not end


@poison("deadlocks", timeout=1, max_restarts=0)
def deadlocks(context, path):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@poison("will_not_stop", timeout=1, max_restarts=0)
def will_not_stop(context, path):
    """Ignore every signal and every request."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        with contextlib.suppress(Interrupted):
            time.sleep(0.01)
            context.check()


@poison("hops", timeout=1, max_restarts=0)
def hops(context, path):
    """Start a program in its own session that forks and exits for ever; then wait."""
    subprocess.Popen([sys.executable, "-c", _HOP])
    time.sleep(LONGEST)


@poison("bombs", timeout=1, max_restarts=0)
def bombs(context, path):
    """Fork as fast as possible as another user with a limit of 100 processes; needs root."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.setuid(NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                os.fork()
        os._exit(0)
    os.waitpid(child, 0)


@poison("eats", timeout=30, max_restarts=1, max_memory="200MiB")
def eats(context, path):
    exec(_EAT, {})


@poison("lets_eat", timeout=30, max_restarts=1, max_memory="200MiB")
def lets_eat(context, path):
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''{_EAT}'''])",
        ],
        start_new_session=True,
        check=False,
    )


# Those that say too much


# Long enough for more than may be passed on, also on a loaded machine.
@poison("floods", timeout=4, max_restarts=0)
def floods(context, path):
    while True:
        print("x" * 1000)


@poison("lets_print", timeout=1, max_restarts=0)
def lets_print(context, path):
    """Run programs that print for ever, one without line ends and one with many."""
    subprocess.Popen(["cat", "/dev/zero"])
    subprocess.run(["yes", "poison"], check=False)


@poison("logs")
def logs(context, path):
    logger = logging.getLogger("shop")
    for number in range(100_000):
        logger.info("line %d", number)
        context.log("x" * 100)
    raise Fatal("f" * 10_000_000)


@poison("progresses", timeout=1, max_restarts=0)
def progresses(context, path):
    number = 0
    while True:
        number += 1
        context.progress(number, message="p" * 1000)


@poison("publishes")
def publishes(context, path):
    while True:
        context.publish(b"x", name="x.bin")


# Those that leave something behind


def _leave(path, event):
    """Start three processes that stay: a child, one in another session, and an orphan."""
    quiet = "start_new_session=True, stdout=subprocess.DEVNULL"
    double = f"import subprocess\nprint(subprocess.Popen({SLEEPER!r}, {quiet}).pid)"
    orphan = subprocess.run(
        [sys.executable, "-c", double], stdout=subprocess.PIPE, text=True, check=True
    )
    children = start_sleepers({}, {"start_new_session": True})
    record(path, event=event, pids=[*(child.pid for child in children), int(orphan.stdout)])


@poison("leaves_children")
def leaves_children(context, path):
    _leave(path, "left")
    raise Fatal("left three behind")


@task_type("poison.returns", timeout=30)
def returns(context, *, path):
    """Leave processes behind and return normally."""
    _leave(path, "left")


@task_type("poison.keeps", timeout=30, keep_processes=True)
def keeps(context, *, path):
    _leave(path, "kept")


@poison("wrecks", max_restarts=0)
def wrecks(context, path):
    os.chdir("/")
    os.umask(0o777)
    for name in list(os.environ):
        del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    sys.setrecursionlimit(sys.getrecursionlimit() // 2)
    sys.stdout.close()
    sys.stderr = None
    with contextlib.suppress(OSError):
        os.setsid()
    raise Fatal("wrecked everything")


_fat = []


@task_type("poison.fattens")
def fattens(context):
    """Keep 300 MiB, and return the worker's pid."""
    _fat.append(bytearray(b"x") * (300 * MIB))
    return os.getpid()


@task_type("poison.modest", max_memory="100MiB")
def modest(context):
    """Use a little memory long enough to be measured; return the worker's pid."""
    taken = bytearray(b"x") * (20 * MIB)
    time.sleep(0.5)
    return os.getpid() if taken else None
