"""The Types ``atp.redrive``, ``atp.cancel`` and ``atp.delete``."""

from __future__ import annotations

from typing import Any

from ..authoring.task_type import task_type
from ..verbs.matching.selection import Selection
from .carrying_out import CarryingOut
from .redriving import Redriving

# It goes on however often its daemon is killed, and waits for a database that is away.
_MANY = 1_000
_PARAMETERS: dict[str, Any] = {
    "timeout": None,
    "max_restarts": _MANY,
    "max_retries": 20,
    "backoff": 5,
    "priority": 50,
}


@task_type("atp.redrive", **_PARAMETERS)
def redrive(
    context: Any,
    *,
    selection: dict[str, Any],
    count: int,
    rate: str | None = None,
    canary: int = 0,
    threshold: float = 0.95,
    by: str = "",
) -> dict[str, Any]:
    """Redrive all Instances of a selection, the canary first, at a rate."""
    chosen = Selection(**selection)
    return Redriving(context, chosen, count, rate, by, canary, threshold).run()


@task_type("atp.cancel", **_PARAMETERS)
def cancel(
    context: Any, *, selection: dict[str, Any], count: int, rate: str | None = None, by: str = ""
) -> dict[str, Any]:
    """Cancel all Instances of a selection, at a rate."""
    return CarryingOut(context, Selection(**selection), count, rate, by).run()


@task_type("atp.delete", **_PARAMETERS)
def delete(
    context: Any, *, selection: dict[str, Any], count: int, rate: str | None = None, by: str = ""
) -> dict[str, Any]:
    """Remove all Instances of a selection, at a rate."""
    return CarryingOut(context, Selection(**selection), count, rate, by).run()
