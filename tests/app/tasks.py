"""Types that tests use."""

from datetime import timedelta

from atp import task_type

from . import (  # noqa: F401 (declare what other tests run)
    tasks_async,
    tasks_cancel,
    tasks_chaos,
    tasks_daemon,
    tasks_downstream,
    tasks_executors,
    tasks_failing,
    tasks_graphs,
    tasks_hooks,
    tasks_loops,
    tasks_middleware,
    tasks_odd,
    tasks_ogc,
    tasks_pause,
    tasks_poison,
    tasks_pools,
    tasks_saga,
    tasks_stacks,
    tasks_steps,
    tasks_tailers,
    tasks_testing,
    tasks_transactional,
)


@task_type("tests.echo")
def echo(context, **values):
    """Return the inputs."""
    return values


@task_type("tests.add", timeout=60, max_restarts=1, max_retries=2, retention=timedelta(days=1))
def add(context, first: int, second: int = 0, *more: int):
    """Return the sum of the arguments."""
    return first + second + sum(more)


@task_type("tests.keyword", priority=5, collection="books")
def keyword(context, *, path: str, scale: float = 1.0):
    """Accept keyword arguments only; the Type declares enqueue options."""
    return path
