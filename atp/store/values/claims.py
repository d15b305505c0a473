"""A claimed Task."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ... import options
from ...payload.codec import Payload
from .types import Parameters


class Claimed(NamedTuple):
    """A Task that a daemon has just claimed, with everything that its attempt needs.

    It is a plain tuple, and keeps the uuid and the inputs as text, since no other value is made and
    passed on as often. Tasks of one claim share the ``parameters`` of their Type.
    """

    instance: int
    name: str
    attempt: int
    format: str
    data: str
    identifier: str | None
    collection: str
    priority: int
    retries: int
    restarts: int
    lost: int
    # Settings of this Instance alone, written by :mod:`atp.options`; mostly None.
    own: str | None
    parameters: Parameters
    # The time of the claim; None in a worker.
    time: datetime | None
    # Whether it counts towards a limit: then its end makes room for another Task.
    limited: bool = False
    # The seconds for which the Task had been due when it was claimed.
    waited: float = 0.0
    # How its Downstream let it through: "rate", "probe", or "" if the Downstream is closed.
    guard: str = ""

    @property
    def uuid(self) -> UUID:
        return UUID(self.name)

    @property
    def inputs(self) -> Payload:
        return Payload(self.format, self.data)

    @property
    def type(self) -> str:
        return self.parameters.type

    @property
    def timeout(self) -> timedelta | None:
        """The time-out of the Instance, or else of its Type."""
        given = None if self.own is None else options.own_timeout(json.loads(self.own))
        return self.parameters.timeout if given is None else given

    @property
    def max_retries(self) -> int:
        """The maximum of retries of the Instance, or else of its Type."""
        given = None if self.own is None else json.loads(self.own).get(options.OWN_MAX_RETRIES)
        return self.parameters.max_retries if given is None else given

    @property
    def carried(self) -> Mapping[str, Any] | None:
        """The values that carriers saved for the handler at the enqueue, by carrier."""
        return None if self.own is None else json.loads(self.own).get(options.CARRIED)

    @property
    def key(self) -> tuple[int, int]:
        """The Instance's key and the attempt's number: no two attempts share both."""
        return self.instance, self.attempt
