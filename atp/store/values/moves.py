"""The events that happen to Instances."""

import logging
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ...states import Event, Reason
from .responses import ResponseData


class Failed(NamedTuple):
    """The cause of a dead letter, and ``group``, the key of its error group."""

    group: int
    type: str
    fingerprint: bytes
    version: int
    exception: str
    title: str


class Move(NamedTuple):
    """An event that happened to an Instance under an attempt.

    ``time`` None is the database's now. ``started`` is given where the start
    of the attempt has not been recorded yet: it is another event, and comes
    first. ``delay`` says when a retry or a deferred Task is due, from now.
    ``reason`` goes with ``fail``, ``response`` with ``finish``. ``detail`` is more of it as
    data, for the log: the class of the exception that its handler raised. ``transactional``
    says that the writes of the attempt are rolled back if this comes too late.
    An Instance that finished and is not ``kept`` is removed, with all that belongs to it.
    If it has published files, the next purge removes it with those. ``failed`` is the cause
    of what becomes a dead letter; ``holding`` is the daemon's own, by which it knows the
    attempt again. RFC 14 calls this "changing of the task status". It is a plain tuple, as one
    is made for each attempt.
    """

    event: Event
    instance: int
    attempt: int | None = None
    time: datetime | None = None
    started: datetime | None = None
    who: str = ""
    message: str = ""
    level: int = logging.INFO
    reason: Reason | str = ""
    delay: timedelta | None = None
    response: ResponseData | None = None
    transactional: bool = False
    kept: bool = True
    detail: str = ""
    holding: Any = None
    failed: Failed | None = None
