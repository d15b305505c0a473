"""Handlers for the nodes of graphs."""

from django.db import transaction

from atp import Fatal, task_type
from atp.exceptions import NoResult

from .tasks_daemon import record, wait_for_file


@task_type("graphs.fetch")
def fetch(context, *, url, broken=False):
    if broken:
        raise Fatal("there is no such scene")
    return {"scene": url, "tiles": [f"{url}/{n}" for n in range(3)]}


@task_type("graphs.shade")
def shade(context, *, path, factor=1):
    return f"shaded {path} by {factor}"


@task_type("graphs.merge")
def merge(context, parts=()):
    return [*parts]


@task_type("graphs.rest")
def rest(context, a, **more):
    """Accept keyword arguments with any name."""


@task_type("graphs.more")
def more(context, a, *others, flag=False):
    """Accept any number of positional arguments."""


@task_type("graphs.by_position")
def by_position(context, a, /, b=0):
    """Accept one positional-only argument."""


@task_type("graphs.named")
def named(context, *, name, after):
    """Accept parameters with the same names as those of Graph.add()."""
    return [name, after]


@task_type("graphs.report")
def report(context, *, of):
    """Return the state, the reason and the result of another node."""
    found = context.results.node(of)
    try:
        return [str(found.state), str(found.reason), context.results[of]]
    except NoResult as error:
        return [str(found.state), str(found.reason), str(error)]


@task_type("graphs.noop")
def noop(context, *, number=0, path=None):
    if path is not None:
        record(path, number=number)
    return number


@task_type("graphs.split")
def split(context, *, path, parts, until=None):
    """Add nodes in two blocks, and wait for a file between the blocks."""
    with context.graph() as g:
        g.map(noop, _rows(path, range(parts)), before="merge")
    record(path, split=context.attempt)
    if until is not None:
        wait_for_file(context, until)
    with context.graph() as g:
        g.map(noop, _rows(path, range(parts, 2 * parts)), before="merge")


@task_type("graphs.split_at_once", transactional=True)
def split_at_once(context, *, path, parts, broken=False):
    with context.graph() as g:
        g.map(noop, _rows(path, range(parts)), before="merge")
    if broken:
        raise Fatal("no parts after all")


@task_type("graphs.grow_in_transaction")
def grow_in_transaction(context):
    with transaction.atomic(), context.graph() as g:
        g.add(noop)


def _rows(path, numbers):
    return [{"path": path, "number": number} for number in numbers]
