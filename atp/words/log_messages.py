"""The log messages of ATP about Instances, Types and daemons, for people.

Messages about attempts are in :mod:`.attempt_messages`, those about nodes in
:mod:`.graph_messages`. No code compares messages: it decides by the kind and the detail of a
LogRecord. Callers use these functions through their module, so that the tests can replace them
(``python -m tests.run --nonsense``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from . import sentences
from .orders import Order

if TYPE_CHECKING:
    from ..models import Gate

_TAKEN_LATER = "its Tasks will be taken away after the time of one lease"
# The maximum number of removed Instances that one message names.
NAMED = 100


def changed(steps: Sequence[tuple[str, Any, Any]], now: datetime) -> str:
    """``steps`` are triples: a column, its old value, and its new value."""
    return "; ".join(
        f"{name} {_shown(was, now)} → {_shown(value, now)}" for name, was, value in steps
    )


def inputs_replaced() -> str:
    return "inputs replaced by those of another enqueue"


def _shown(value: Any, now: datetime) -> object:
    if value == now:
        return "now"
    if hasattr(value, "astimezone"):
        return sentences.in_utc(value.astimezone(UTC))
    return "none" if value == "" else value


def dropped(gate: Gate) -> str:
    reason = f": {gate.reason}" if gate.reason else ""
    return f"dropped by {gate.who or 'nobody'} ({gate.subject}){reason}"


# Inputs that do not fit.


def misfit(release: str, why: str) -> str:
    """``release`` is that of the daemon, "" if it has none; ``why`` says what does not fit."""
    who = f"release {release} does" if release else "this daemon does"
    return f"{who} not take its inputs: {why}"


def misfit_for(last: str, since: datetime) -> str:
    """``last`` is the message of the last deferral, ``since`` the time of the first."""
    return f"{last}. Every daemon that tried since {sentences.in_utc(since)} refused the inputs"


# Hooks.


def hooked(on: str, type: str, uuid: object) -> str:
    return f"{on}: {type} was enqueued as {uuid}"


def hook_unknown(on: str, type: str) -> str:
    return f"{on}: nothing was enqueued, because no Type {type!r} is registered"


def cursor_set(shard: str, before: str | None, after: str | None) -> str:
    return f"the cursor of shard {shard!r} was set: from {before or 'none'} to {after or 'none'}"


def source_left(what: str) -> str:
    """``what`` is the notes of the last look, a line for each; empty if there are none."""
    return "; ".join(what.splitlines()) or "everything in the source can be read again"


# What a scan has mended, or found.


def mended(what: str, done: str) -> str:
    return f"{what}: {done}"


def had_ended() -> str:
    return "it had ended, but still had a Task"


def nobody_held(state: str) -> str:
    return f"it was {state}, but no daemon held its Task"


def somebody_held(state: str) -> str:
    return f"it was {state}, but a daemon held its Task"


def other_attempt(own: int, of_task: int) -> str:
    return f"the Instance was at attempt {own}, but its Task at attempt {of_task}"


def no_task(state: str = "") -> str:
    return f"it was {state}, but had no Task" if state else "it had no Task"


def orphan_removed(key: int) -> str:
    return f"a Task without an Instance was removed: key {key}"


def task_removed() -> str:
    return "ATP deleted this Task"


def task_freed() -> str:
    return "its Task waits again"


def attempt_expired() -> str:
    return "its attempt was expired"


def task_given() -> str:
    return "it was given a Task"


def attempt_aligned() -> str:
    return "the Instance and its Task now both have the higher attempt number"


def taken_later() -> str:
    return _TAKEN_LATER


def row_gone() -> str:
    return f"its row was gone: {_TAKEN_LATER}"


def unclaimed() -> str:
    return "due for long and not claimed, although an idle daemon serves its Type"


# Gates and limits.


def gate(
    mode: str, *, until: datetime | None = None, reason: str = "", was: Gate | None = None
) -> str:
    """``was`` is the shut gate that this one replaces, or None."""
    until = f", until {sentences.in_utc(until)}" if until else ""
    reason = f": {reason}" if reason else ""
    before = f" (was: {sentences.state_of(was, sentences.in_utc)})" if was is not None else ""
    return f"gate: {mode}{until}{reason}{before}"


def limits_set(limits: Mapping[str, Any]) -> str:
    return f"limits: {_limits(limits)}"


def limits_left(limits: Mapping[str, Any], *, is_known: bool) -> str:
    """``is_known`` tells whether these limits are those that the code declares."""
    until = "" if is_known else ", unchanged until the next registration"
    return f"limits left to the code{until}: {_limits(limits)}"


def limits_declared(declared: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name}: {value}" for name, value in declared.items()) or "none"
    return f"limits declared by the code: {told}"


def _limits(limits: Mapping[str, Any]) -> str:
    found = [f"max_running: {limits['max_running']}"] if limits["max_running"] is not None else []
    each = limits["max_running_per_collection"]
    found += [f"max_running_per_collection: {each}"] if each is not None else []
    found += [f"rate: {limits['rate']}, burst: {limits['burst']}"] if limits["rate"] else []
    found += [f"weight: {limits['weight']:g}"] if limits["weight"] != 1 else []
    found += [f"max_waiting: {limits['max_waiting']}"] if limits["max_waiting"] is not None else []
    found += [f"max_wait: {limits['max_wait']}"] if limits["max_wait"] is not None else []
    return "; ".join(found) or "none"


def full(count: int, waiting: int) -> str:
    """``count`` enqueues of one process were refused or delayed; ``waiting`` Instances waited."""
    return f"full: {count} enqueues refused or delayed, {waiting} waiting"


# Types.


def registered() -> str:
    return "registered"


def parameters(changes: Mapping[str, tuple[object, object]]) -> str:
    """``changes`` are pairs by name: the old value and the new one."""
    told = ", ".join(f"{name}: {was} → {value}" for name, (was, value) in changes.items())
    return f"changed: {told}"


def unregistered() -> str:
    return "unregistered"


def removed(uuids: Sequence[str]) -> str:
    named = ", ".join(uuids[:NAMED]) + (", …" if len(uuids) > NAMED else "")
    return f"Instances removed: {len(uuids)} ({named})"


# Daemons.


def started() -> str:
    return "started"


def rejoined() -> str:
    return "joined again"


def left(uuid: UUID) -> str:
    return f"stopped ({uuid})"


def lost(uuid: UUID, count: int) -> str:
    return f"lost; {_taken(count)} ({uuid})"


def tasks_taken(count: int) -> str:
    return _taken(count)


def _taken(count: int) -> str:
    return f"{count} of its Tasks were taken away"


def ordered(order: Order) -> str:
    return f"told to {order.label}"


# Of an Instance, in a test


def lost_in_rehearsal() -> str:
    return "a test marked this attempt as lost"


def left_out_in_rehearsal() -> str:
    return "this attempt was skipped: a test began with a later one"
