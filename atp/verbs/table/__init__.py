"""The table of verbs: each verb that an operator or a program can use, as one entry.

Shell, API, pages, admin and docs derive from it: a new verb is one entry.
"""

from collections.abc import Iterable
from typing import Any

from ...models import Instance, Task
from . import daemons, downstreams, graphs, instances, matching, schedules, scopes, tailers
from .allowed import allowed_of

INSTANCE, SCOPE, DAEMON, SCHEDULE, GRAPH = "instance", "scope", "daemon", "schedule", "graph"
DOWNSTREAM, TAILER, MATCHING, ERROR = "downstream", "tailer", "matching", "error"


def _by_name(verbs: Iterable[Any]) -> dict[str, Any]:
    return {verb.name: verb for verb in verbs}


# The verbs by their names, by the kind of their subject.
VERBS = {
    INSTANCE: _by_name(instances.VERBS),
    SCOPE: _by_name(scopes.VERBS),
    DAEMON: _by_name(daemons.VERBS),
    SCHEDULE: _by_name(schedules.VERBS),
    GRAPH: _by_name(graphs.VERBS),
    DOWNSTREAM: _by_name(downstreams.VERBS),
    TAILER: _by_name(tailers.VERBS),
    MATCHING: _by_name(matching.ALL_MATCHING),
    ERROR: _by_name(matching.OF_ERROR),
}


def allowed(instance: Instance, task: Task | None = None) -> list[instances.InstanceVerb]:
    """Return the verbs that the state of an Instance allows; see :func:`.allowed_of`."""
    return allowed_of(VERBS[INSTANCE].values(), instance, task)
