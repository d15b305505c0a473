"""Every page there is, by the name of its URL."""

from django.urls import reverse

from atp import urls
from atp.models import Daemon
from atp.states import State

# Not pages: what acts, and what is downloaded.
_OTHERS = {"action", "order", "response", "file"}
NAMES = sorted({pattern.name for pattern in urls.urlpatterns} - _OTHERS)


def address(name, full):
    """Return the path of a page, of something in a queue that :func:`populate` has filled."""
    of_instance = {"uuid": full[State.FAILED].uuid}
    of_type = {"identifier": "tests.add"}
    arguments = {
        "instance": of_instance,
        "log": of_instance,
        "delete": of_instance,
        "change": {"uuid": full[State.ACCEPTED].uuid},
        "type": of_type,
        "enqueue": of_type,
        "type-gate": of_type,
        "type-limit": of_type,
        "daemon": {"uuid": Daemon.objects.first().uuid},
    }
    return reverse(f"atp:{name}", kwargs=arguments.get(name))
