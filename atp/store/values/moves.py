"""Moves: the events that happen to Instances."""

import logging
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ...states import Event, Reason
from .responses import ResponseData


class Failed(NamedTuple):
    """The cause of a dead letter; ``group`` is the key of its error group."""

    group: int
    type: str
    fingerprint: bytes
    version: int
    exception: str
    title: str


class Move(NamedTuple):
    """An event that happened to an Instance under an attempt.

    ``time`` None means the database's now. ``started`` is given if the start of the attempt has not
    been recorded yet: the start is then an event of its own, and comes first. ``delay`` is the time
    from now until a retry or a deferred Task is due. ``reason`` goes with ``fail``, ``response``
    with ``finish``. ``detail`` is data for the log, such as the class of the exception that the
    handler raised. ``transactional`` says that the attempt's writes are rolled back if the move
    comes too late. If ``kept`` is False, an Instance that FINISHED is removed with all its rows; if
    it has published files, the next purge removes it with those. ``failed`` is the cause of a dead
    letter. ``holding`` belongs to the daemon, which recognizes the attempt by it. RFC 14 calls a
    move "changing of the task status". It is a plain tuple, as one is made for each attempt.
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
