"""The log messages about downstreams, for people: no code compares them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime


def refused() -> str:
    return "its downstream refuses calls"


def failed() -> str:
    return "its downstream fails"


def takes_no_more(name: str) -> str:
    return f"the downstream {name} takes no more calls"


def locked() -> str:
    return "its downstream has refused a call, which cannot be noted while its row is locked"


def changed(was: str, state: str, per_second: float, not_before: datetime | None) -> str:
    told = f"{was} → {state}"
    if state == "throttled":
        told += f", {per_second:.3g} calls a second"
    if state == "open" and not_before is not None:
        told += f", no call before {not_before.isoformat(timespec='seconds')}"
    return told


def bound(changes: Mapping[str, float | None]) -> str:
    told = [
        f"{name}: {'none' if value is None else f'{value:g}/s'}" for name, value in changes.items()
    ]
    return ", ".join(told)


def reset() -> str:
    return "reset: taken as healthy"


def tripped() -> str:
    return "tripped: no call for now"
