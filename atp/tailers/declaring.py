"""Declaring tailers: ``@tailer("scenes", Directory("/srv/scenes"))``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from inspect import Parameter, Signature
from typing import Any

from django.db import DEFAULT_DB_ALIAS

from ..authoring.task_type import task_type
from ..conf import settings
from ..exceptions import InvalidType
from ..sources import Source
from ..verbs.schedule_specs import declared as schedules
from ..verbs.schedule_specs import spec_of, timing
from .reading import Reading
from .rejected import map_again
from .tailer import Function, Tailer, declared

MOST_IN_BATCH = 10_000
# The options that a tailer passes on to its two Types.
PASSED_ON = ("collection", "max_memory", "owner", "priority", "runbook")
# A tailer reads ahead of what it enqueues.
PRIORITY = 50
REJECTED = ".rejected"
# A record that kills its worker costs the reading attempt two restarts.
MOST_RESTARTS = 50
MOST_RETRIES = 20
LONGEST_BACKOFF = timedelta(minutes=1)


def tailer(
    identifier: str,
    source: Source,
    *,
    every: timedelta | float | None = 5,
    batch: int = 500,
    timeout: timedelta | float = 300,
    **options: Any,
) -> Callable[[Function], Tailer]:
    """Declare a tailer: it reads a source, and the decorated function maps records to calls.

    The function gets a :class:`~atp.sources.Record` and returns a call, as
    ``hillshade.call(path=…)``, a list of calls, or None if there is nothing to do. The calls of
    up to ``batch`` records are enqueued in one transaction, together with the new position in the
    source. A record for which the function raises is put aside, as an Instance of the Type
    ``<identifier>.rejected``.

    A schedule of the same identifier starts to read ``every`` so many seconds; with None there is
    no schedule, and ``.type.enqueue()`` reads. ``timeout`` limits one attempt to read, in seconds
    or as a timedelta. ``collection``, ``priority``, ``max_memory``, ``owner`` and ``runbook`` are
    those of its Types.

    Raises InvalidType, InvalidOption or InvalidSchedule.
    """
    told = f"tailer({identifier!r})"
    if not isinstance(source, Source):
        raise InvalidType(f"{told}: {source!r} is no source, as Directory(path).")
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_IN_BATCH:
        raise InvalidType(f"{told}: batch={batch!r} must be from 1 to {MOST_IN_BATCH}.")
    for name in options:
        if name not in PASSED_ON:
            raise InvalidType(f"{told} has no parameter {name!r}.")

    if every is not None:
        timing(every=every)  # raises InvalidSchedule

    def declare(function: Function) -> Tailer:
        made: Tailer | None = None

        @wraps(function)
        def read(context: Any) -> dict[str, Any]:
            return Reading(context, made).run()  # type: ignore[arg-type]

        @wraps(function)
        def map_rejected(context: Any, *, record: dict[str, Any], error: str) -> int:
            return map_again(made, record)  # type: ignore[arg-type]

        read.is_tailer = True  # type: ignore[attr-defined]
        _sign(read)
        _sign(map_rejected, "record", "error")
        shared: dict[str, Any] = {"timeout": timeout} | options
        of_reading: dict[str, Any] = {"priority": PRIORITY} | shared
        reading = task_type(
            identifier,
            retention=0,
            max_restarts=MOST_RESTARTS,
            max_retries=MOST_RETRIES,
            backoff=1,
            backoff_max=LONGEST_BACKOFF,
            **of_reading,
        )(read)
        alias = settings.DATABASE
        rejected = task_type(
            identifier + REJECTED,
            transactional=alias if alias != DEFAULT_DB_ALIAS else True,
            max_restarts=0,
            max_retries=0,
            **shared,
        )(map_rejected)
        if every is not None:
            spec = spec_of(identifier, reading, every=every, overlap="skip")
            schedules.add(spec, reading, getattr(function, "__globals__", {}).get("__spec__"))
        made = Tailer(
            identifier=identifier,
            source=source,
            function=function,
            batch=batch,
            type=reading,
            rejected=rejected,
        )
        declared.add(made)
        return made

    return declare


def _sign(handler: Callable[..., Any], *names: str) -> None:
    """Give a handler the signature that its Type is to have, instead of the function's."""
    first = Parameter("context", Parameter.POSITIONAL_ONLY)
    others = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    handler.__signature__ = Signature([first, *others])  # type: ignore[attr-defined]
    handler.__annotations__ = {}
