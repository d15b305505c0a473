"""Every page there is, by the name of its URL; those of verbs by the verb."""

from django.urls import reverse

from atp import urls
from atp.models import Daemon
from atp.states import State

from ..populated import SCHEDULE

# Not pages: what acts, and what is downloaded.
_OTHERS = {"daemon-verb", "graph-verb", "response", "file", "graph-mermaid"}
# Verbs that have a page of their own, by the name of the URL.
_VERBS = {
    "instance-verb": ("change", "delete"),
    "type-verb": ("purge", "hold"),
    "schedule-verb": ("change", "backfill", "delete"),
    "downstream-verb": ("bound",),
    "tailer-verb": ("seek", "forget"),
    "failure-verb": ("redrive", "delete"),
    "verb": ("purge",),
}
NAMES = sorted(
    name if verb is None else f"{name} {verb}"
    for name in {pattern.name for pattern in urls.urlpatterns} - _OTHERS
    for verb in _VERBS.get(name, [None])
)


def address(name, full):
    """Return the path of a page, of something in a queue that :func:`populate` has filled."""
    of_instance = {"uuid": full[State.FAILED].uuid}
    of_type = {"identifier": "tests.add"}
    of_downstream = {"downstream": full.downstream().name}
    of_tailer = {"tailer": full.tailer().identifier}
    of_error = {"group": full.error().name}
    arguments = {
        "instance": of_instance,
        "log": of_instance,
        "instance-verb": {"uuid": full[State.ACCEPTED].uuid},
        "type": of_type,
        "enqueue": of_type,
        "type-verb": of_type,
        "new-schedule": of_type,
        "schedule": {"identifier": SCHEDULE},
        "schedule-verb": {"identifier": SCHEDULE},
        "type-gate": of_type,
        "type-limit": of_type,
        "graph": {"uuid": full.graph().uuid} if name == "graph" else {},
        "nodes": {"uuid": full.graph().uuid} if name == "nodes" else {},
        "tailer": of_tailer,
        "tailer-verb": of_tailer,
        "downstream": of_downstream,
        "downstream-verb": of_downstream,
        "failure": of_error,
        "failure-verb": of_error,
        "daemon": {"uuid": Daemon.objects.first().uuid},
    }
    name, _, verb = name.partition(" ")
    named = {"name": verb} if verb else {}
    return reverse(f"atp:{name}", kwargs=arguments.get(name, {}) | named)
