"""The parameters of ``@task_type``: their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypedDict

from ...verbs import hooking
from .. import retrying


# Compared and hashed by identity, which is quick: each enqueue looks its Registration up by these.
@dataclass(frozen=True, eq=False)
class Setting:
    """A default that is read from ``settings.ATP`` when it is used."""

    name: str

    def __repr__(self) -> str:
        return f"ATP[{self.name!r}]"


class TypeParameters(TypedDict, total=False):
    """The parameters of ``@task_type`` by name, each of which may be left out."""

    timeout: timedelta | float | None
    backoff: timedelta | float | Sequence[timedelta | float]
    backoff_max: timedelta | float
    retention: timedelta | float | None
    max_restarts: int
    max_retries: int
    retry_on: retrying.Named | Sequence[retrying.Named]
    fatal_on: retrying.Named | Sequence[retrying.Named]
    downstream: str
    downstream_errors: retrying.Named | Sequence[retrying.Named]
    owner: str
    runbook: str
    sensitive: Sequence[str]
    max_memory: int | str | None
    serializer: Literal["json", "pickle"]
    transactional: bool | str
    keep_processes: bool
    stoppable: bool
    cancel_grace: timedelta | float | None
    max_running: int | None
    max_running_per_collection: int | None
    rate: str | None
    burst: int | None
    weight: float | None
    max_waiting: int | None
    max_wait: timedelta | float | None
    exact: bool
    on_finished: hooking.HookLike
    on_failed: hooking.HookLike
    priority: int
    collection: str
    formerly: Sequence[str]


KNOWN = tuple(TypeParameters.__annotations__)

DURATIONS = ("timeout", "backoff", "backoff_max", "retention")

COUNTS = ("max_restarts", "max_retries")

PARAMETERS = (*DURATIONS, *COUNTS, "max_memory", "downstream", "owner", "runbook", "sensitive")

OPTIONS = ("priority", "collection", "exact")
