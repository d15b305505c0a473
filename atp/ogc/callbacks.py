"""Callbacks: the Types that send the progress and the end of a job to the client's server.

A hook sends the end of a job, so the server gets it even if a daemon dies. It may get it more than
once. A Task sends the progress every ten seconds, and takes no worker while it waits in between.
The setting OGC_HOSTS lists the hosts that may be called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from .. import outside, queue
from ..authoring.task_type import task_type
from ..conf import settings
from ..exceptions import Defer, Fatal, Retry, UnknownInstance
from ..models import Instance
from ..states import State
from . import documents, results
from .documents import Document, below
from .processes import find

# In seconds: the time between two looks at the progress.
LOOK_EVERY = 10.0
SUCCESS, FAILED, IN_PROGRESS = documents.CALLBACKS


def problems_of(subscriber: Any) -> list[tuple[str, str]]:
    """Return what is wrong with a subscriber, each with its place in the body of the request."""
    if not isinstance(subscriber, dict):
        return [("subscriber", "It must be an object.")]
    found = []
    for name in documents.CALLBACKS:
        address = subscriber.get(name)
        if address is None:
            continue
        try:
            outside.check(str(address))
        except outside.Refused as error:
            found.append((f"subscriber.{name}", str(error)))
    return found


def enqueue(
    subscriber: Mapping[str, str], base: str, calls: Sequence[queue.Call]
) -> list[Instance]:
    """Enqueue a job with its callbacks, all or nothing. Return the job's Instance in a list.

    ``base`` is the address of the service, to which the documents have links.
    """
    [call] = calls
    hooks = {
        option: (callback, {"url": subscriber[key], "base": base})
        for option, key in (("on_finished", SUCCESS), ("on_failed", FAILED))
        if subscriber.get(key)
    }
    declared: Any = call.task_type
    call = queue.Call(task_type=declared.using(**hooks), args=call.args, kwargs=call.kwargs)
    with transaction.atomic(using=settings.DATABASE):
        [instance] = queue.enqueue_calls([call])
        if subscriber.get(IN_PROGRESS):
            options = declared.options
            follower = follow.using(collection=options.collection, created_by=options.created_by)
            follower.enqueue(job=str(instance.uuid), url=subscriber[IN_PROGRESS], base=base)
    return [instance]


@task_type(
    "atp.callback",
    timeout=60,
    max_restarts=8,
    max_retries=len(outside.RETRIES),
    backoff=outside.RETRIES,
)
def callback(
    context: Any, *, url: str, base: str, uuid: str, type: str, state: str, reason: str
) -> dict[str, int]:
    """Send the end of a job to the address that its client has named."""
    instance = _find(uuid)
    job = find(type)
    if state == State.FINISHED and job is not None:
        wanted, found = results.wanted_of(instance), results.outputs(job, queue.response(instance))
        chosen = [each for name, each in found.items() if name in (wanted.names or found)]
        return _send(url, results.document(instance, chosen, below(base), wanted))
    last = documents.last_transition(instance)
    return _send(url, documents.status_info(instance, below(base), last=last))


@task_type(
    "atp.progress",
    timeout=60,
    max_restarts=8,
    max_retries=len(outside.RETRIES),
    backoff=outside.RETRIES,
)
def follow(context: Any, *, job: str, url: str, base: str) -> None:
    """Send the status of a job every ten seconds, until it has ended."""
    instance = _find(job)
    if instance.is_terminal:
        return
    if instance.is_under_way:
        causes = documents.causes_of([instance])
        _send(url, documents.status_info(instance, below(base), causes.get(instance.pk)))
    raise Defer("the job has not ended", after=LOOK_EVERY)


def _find(uuid: str) -> Instance:
    try:
        return queue.get(uuid)
    except UnknownInstance:
        raise Fatal("the job was removed") from None


def _send(url: str, document: Document) -> dict[str, int]:
    try:
        status = outside.post(url, json.dumps(document).encode(), documents.JSON)
    except outside.Refused as error:
        raise Fatal(str(error)) from None
    except outside.Failed as error:
        raise Retry(str(error)) from None
    if status == 410:
        raise Fatal("the client's server refuses further calls: it answered 410")
    if not 200 <= status < 300:
        raise Retry(f"the client's server answered {status}")
    return {"status": status}
