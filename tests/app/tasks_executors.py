"""Types whose attempts an engine runs, for the contract of executors."""

import logging
import os
import signal
import time

from atp import task_type

from .tasks_daemon import record

# The name in the setting EXECUTORS.
ENGINE = "engine"


@task_type("elsewhere.computes", max_restarts=0)
def computes(context, *, is_killed):
    """Run here, and give Dask a sum, and more than it gets done."""
    with context.dask(ENGINE) as client:
        total = client.submit(sum, [1, 2, 3]).result()
        kept = [client.submit(time.sleep, 60, pure=False) for _ in range(100)]
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"total": total, "kept": len(kept)}


@task_type("elsewhere.note", executor=ENGINE)
def note(context, *, path, number=0):
    record(path, event="ran", number=number, attempt=context.attempt)


@task_type("elsewhere.needs_gpu", executor=ENGINE, resources={"GPU": 1})
def needs_gpu(context, *, path, number=0):
    record(path, event="ran", number=number, attempt=context.attempt)


@task_type("elsewhere.short", executor=ENGINE, max_restarts=50)
def short(context, *, path, number):
    time.sleep(0.01)
    record(path, event="ran", number=number, attempt=context.attempt)


@task_type("elsewhere.tells", executor=ENGINE)
def tells(context):
    context.progress(0.5, message="half")
    context.flush()
    logging.getLogger("elsewhere").warning("said over there")
    path = context.scratch / "answer.txt"
    path.write_text("from over there")
    context.publish(path)
    kept = context.step("first", lambda: 7)
    return {"kept": kept, "parent": os.getppid()}


@task_type("elsewhere.beats", executor=ENGINE, max_restarts=50, cancel_grace=1)
def beats(context, *, path, seconds=60.0, number=0):
    """Write that it is alive, again and again."""
    facts = {"number": number, "attempt": context.attempt}
    record(path, event="start", **facts)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
        record(path, event="beat", **facts)
    record(path, event="end", **facts)


@task_type("elsewhere.loops", executor=ENGINE, cancel_grace=1)
def loops(context, *, path):
    """Never come back from code of C."""
    record(path, event="start")
    sum(range(10**12))


@task_type("elsewhere.pauses", executor=ENGINE, timeout=60)
def pauses(context):
    with context.paused("for a coffee"):
        pass
    return "went on"


@task_type("elsewhere.late", executor=ENGINE, timeout=1, max_restarts=0)
def late(context):
    time.sleep(60)


@task_type("elsewhere.crashes", executor=ENGINE, max_restarts=0)
def crashes(context):
    os.kill(os.getpid(), signal.SIGSEGV)


if os.environ.get("ATP_TEST_ELSEWHERE") != "yes":

    @task_type("elsewhere.unknown", executor=ENGINE)
    def unknown(context):
        """Be declared here, and not where the engine runs."""


def environment_of_engine():
    """Return what goes over the environment of an engine's worker."""
    return {"ATP_TEST_ELSEWHERE": "yes"}
