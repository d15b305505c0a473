"""The verbs: everything that an application or an operator does with the queue.

The pages, the API, the admin, the shell and the application call these and
nothing below them. ``by`` names who acts and through which channel, as text
for the log.
"""

from collections import defaultdict
from contextlib import nullcontext

from django.db import transaction

from .calls import (
    Call,  # noqa: F401 (what enqueue_calls takes)
    arguments_of,
    identifiers_of,
    request_of,
)
from .changing import change  # noqa: F401 (a verb)
from .commanding import command, get_daemon  # noqa: F401 (verbs)
from .conf import did_you_mean, settings
from .controls import (  # noqa: F401 (verbs on places)
    declared_limits,
    drop,
    gates,
    hold,
    limit,
    limits,
    open_gate,
    unlimit,
)
from .exceptions import ATPError, UnknownType
from .finding import get  # noqa: F401 (a verb)
from .logs import place_log  # noqa: F401 (a selection)
from .models import Inputs, Response, Task, Type
from .registry import is_identifier, registry
from .steering import (  # noqa: F401 (verbs)
    cancel,
    delete,
    pause,
    purge,
    redrive,
    release,
    resume,
)
from .store import get_store
from .store.findings import NOWHERE, Place

# Types


def register(*task_types, by=""):
    """Write declared Types to the database; again is an update (RFC 14)."""
    store = get_store()
    store.register([task_type.registration() for task_type in task_types], who=by)
    store.declare({str(task_type): declared_limits(task_type) for task_type in task_types}, who=by)


def register_all(by=""):
    """Write every Type that this process declares."""
    register(*registry, by=by)


def unregister(identifier, by=""):
    """Remove a Type from the database (RFC 14).

    Raises UnknownType, or TypeInUse while Instances of it exist.
    """
    get_store().unregister(identifier, who=by)


# Enqueueing


def enqueue(task_type, /, *args, **kwargs):
    """Enqueue one Instance; see :meth:`TaskType.enqueue`."""
    store = get_store()
    request = _request(store, task_type, args, kwargs)
    return store.enqueue(task_type.registration(), [request])[0]


def _request(store, task_type, args, kwargs):
    options = task_type.options.checked(store.now)
    most = settings.MAX_INPUTS_SIZE
    return request_of(task_type, args, kwargs, options, options.identifier, most)


def enqueue_many(task_type, inputs, *, identifiers=None):
    """Enqueue many Instances, all or none; see :meth:`TaskType.enqueue_many`."""
    given = [arguments_of(item) for item in inputs]
    names = identifiers_of(task_type, len(given), identifiers)
    store = get_store()
    # One look at the options, however many there are.
    options = task_type.options.checked(store.now)
    most = settings.MAX_INPUTS_SIZE
    requests = [
        request_of(task_type, args, kwargs, options, name, most)
        for (args, kwargs), name in zip(given, names, strict=True)
    ]
    return store.enqueue(task_type.registration(), requests)


def enqueue_calls(calls):
    """Enqueue calls of any Types, each with options of its own, all or none.

    Returns the Instances in the same order. Raises what
    :meth:`TaskType.enqueue` does; what is wrong with one call, and not with
    two together, has its place among them as ``call``.
    """
    store = get_store()
    of_type = defaultdict(list)
    for number, call in enumerate(calls):
        try:
            request = _request(store, call.task_type, call.args, call.kwargs)
        except ATPError as error:
            error.call = number
            raise
        of_type[call.task_type.identifier].append((number, call.task_type, request))
    enqueued = {}
    # A verb of the store is a transaction already.
    together = transaction.atomic(using=settings.DATABASE) if len(of_type) > 1 else nullcontext()
    with together:
        for numbered in of_type.values():
            numbers, task_types, requests = zip(*numbered, strict=True)
            instances = store.enqueue(task_types[0].registration(), list(requests))
            enqueued.update(zip(numbers, instances, strict=True))
    return [enqueued[number] for number in sorted(enqueued)]


# Looking


def get_type(identifier):
    """Return the registered Type. Raises UnknownType, with the closest that there is."""
    types = Type.objects.using(settings.DATABASE)
    # What can be no identifier may be text that the database does not take.
    found = types.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if found is None:
        known = types.values_list("identifier", flat=True)
        raise UnknownType(f"No Type {identifier!r} is registered.{did_you_mean(identifier, known)}")
    return found


def declared(identifier):
    """Return the Type as this process declares it: only its handler says which inputs fit.

    Raises UnregisteredHandler if only the database knows it, UnknownType if nobody does.
    """
    if identifier in registry or not is_identifier(identifier):
        return registry.get(identifier)
    types = Type.objects.using(settings.DATABASE)
    is_known = types.filter(identifier=identifier).exists()
    return registry.handler_of(identifier) if is_known else registry.get(identifier)


def inputs(instance):
    """Return the Inputs of an Instance, or None while it is being removed."""
    return Inputs.objects.using(settings.DATABASE).filter(pk=instance.pk).first()


def response(instance):
    """Return the Response of an Instance, or None if it has none (RFC 14)."""
    return Response.objects.using(settings.DATABASE).filter(instance=instance).first()


def task(instance):
    """Return the Task of an Instance, with its daemon; None if it has ended."""
    tasks = Task.objects.using(settings.DATABASE).select_related("daemon")
    return tasks.filter(pk=instance.pk).first()


def size(type=None):
    """Return how many Instances are live: waiting or claimed."""
    tasks = Task.objects.using(settings.DATABASE)
    return tasks.filter(type__identifier=str(type)).count() if type else tasks.count()


def waiting(type=None, collection=None, *, most=None):
    """Return how many Instances wait in a Type, a lane, or everywhere; counted up to ``most``."""
    tasks = Task.objects.using(settings.DATABASE).waiting()
    if type is not None:
        tasks = tasks.filter(type__identifier=str(type))
    if collection is not None:
        tasks = tasks.filter(collection=collection)
    return tasks[:most].count()


# Checking


def scan(*, repair=True, by=""):
    """Look at the whole queue for what should never be, and return the list of Findings.

    What is safe to mend is mended, unless ``repair`` is off. It takes the
    longer the more Instances there are; daemons do the same a part at a time.
    """
    found, place = {}, None
    while place != Place():
        scanned = get_store().scan(place, who=by, repair=repair)
        found |= {finding.key: finding for finding in scanned.findings}
        place = scanned.place
    return list(found.values())


def suspicions():
    """Return the Findings that indexes tell at once, with nothing mended."""
    return list(get_store().scan(NOWHERE, repair=False).findings)
