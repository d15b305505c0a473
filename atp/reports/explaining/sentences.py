"""The answer in words, and as a document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from ... import text
from ...models import Downstream, Gate, Instance
from ...operations.registry import IMPORTED
from ...store.values.outlooks import OpenTransaction
from .. import documents
from ..documents import Document
from .facts import MOST_COUNTED, Estimate, Explanation, Full, Queued

# An explanation as a document: plain values by name, for the shell's JSON and the API.


def document(explanation: Explanation) -> Document:
    """Return an explanation as plain values; ``told`` is the estimate in words."""
    starts = explanation.starts
    return asdict(explanation) | {
        "starts": None
        if starts is None
        else {
            "low": _seconds(starts.low),
            "likely": _seconds(starts.likely),
            "high": _seconds(starts.high),
            "why": starts.why,
            "told": start_sentence(starts),
        }
    }


def _seconds(delay: timedelta | None) -> float | None:
    return None if delay is None else delay.total_seconds()


# The words of explanations: a sentence for each cause.

NEW = (
    "Nothing holds back one that is enqueued now: it waits for its turn, and for a worker that is "
    "free."
)
READY = "Nothing holds it back: it waits for its turn, and for a worker that is free."


def time(moment: datetime) -> str:
    """Return a time with the name of the current time zone."""
    return f"{text.moment(moment)} {text.zone()}"


def name(daemon: Document | None) -> str:
    """Return the name of a daemon with its release; "a daemon" if its name was redacted."""
    if daemon is None or not daemon["host"]:
        return "a daemon"
    release = f" (release {daemon['release']})" if daemon["release"] else ""
    return f"{daemon['host']}:{daemon['pid']}{release}"


def place(row: Any) -> str:
    """Return the scope of a Gate or a Limit in words that begin a sentence."""
    if row.type is None:
        return "Everything"
    if row.collection is None:
        return str(row.type.identifier)
    if not row.collection:
        return f"{row.type.identifier} without a collection"
    return f"{row.type.identifier}, collection {row.collection!r},"


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# Instances that do not exist, or have ended


def no_such(uuid: str, trace: Document | None) -> str:
    if trace is None:
        return (
            f"There is no Instance {uuid}. It has been purged when the retention of its Type was "
            "over, or there never was one."
        )
    subject = trace["subject"].removeprefix("type:")
    return f"There is no Instance {uuid}: one of {subject} was removed{_by(trace['who'])}."


def ended(instance: Instance, error: str) -> str:
    at = time(instance.finished) if instance.finished else "an unknown time"
    told = f": {error}" if error else ""
    return f"It ended as {text.state(instance)} at {at}{told}".rstrip(".") + "."


# Instances that a daemon holds


def cancel_asked(asked: Document | None, killed: datetime | None) -> str:
    who = "" if asked is None else asked["who"]
    told = f"It was asked to be cancelled{_by(who)}, and has not ended yet"
    return f"{told}." if killed is None else f"{told}: it is killed at {time(killed)}."


def holder_lost(holder: Document, others: int) -> str:
    told = f"It is held by {name(holder)}, which is lost"
    if others:
        return f"{told}: another daemon takes it away within a second or two, and it runs again."
    return f"{told}, and no other daemon is alive to take it away."


def holder_late(holder: Document, ends: datetime | None) -> str:
    told = f"It is held by {name(holder)}, which has not renewed its lease in time"
    if ends is None:
        return f"{told}."
    return f"{told}: it is taken away if that is not done by {time(ends)}."


def paused(who: str) -> str:
    return f"It was paused{_by(who)}."


def running(told: Mapping[str, Any], began: datetime, until: datetime | None, now: datetime) -> str:
    parts = [f"It runs: attempt {told['attempt']}, since {text.age(began, now)}"]
    if told["is_slow"]:
        p99 = text.duration(timedelta(seconds=told["p99"]))
        if told["runs"] < 100:
            parts.append(f"longer than the last {told['runs']} of its Type, which took up to {p99}")
        else:
            parts.append(f"longer than 99 of 100 of its Type, which end within {p99}")
    if told["silent_since"] > began or told["is_slow"]:
        parts.append(f"its log has been silent for {text.age(told['silent_since'], now)}")
    if until is not None:
        parts.append(f"it is killed at {time(until)}")
    return "; ".join(parts) + "."


def claimed(holder: Document | None, *, alone: bool) -> str:
    waits = "a worker of its own" if alone else "one of its workers"
    return f"It is held by {name(holder)}, and waits there for {waits}."


# Gates, limits and downstreams


def shut(gate: Gate) -> str:
    done = "to be dropped" if gate.mode == "drop" else text.MODES[gate.mode]
    until = f" until {time(gate.until)}" if gate.until else ""
    reason = f" ({gate.reason})" if gate.reason else ""
    return f"{place(gate)} is {done}{_by(gate.who)}{until}{reason}"


def full(found: Full, lane: str | None = None) -> str:
    row, held = found.limit, found.held
    if found.kind == "rate":
        assert found.at is not None
        return f"{place(row)} is limited to {row.rate}, and the next may start at {time(found.at)}"
    if found.kind == "running":
        return (
            f"{place(row)} is limited to {row.max_running} at once, and {held} {_are(held)} claimed"
        )
    own = f"collection {lane!r}" if lane else "what has no collection"
    return (
        f"{place(row)} is limited to {row.max_running_per_collection} at once in each collection, "
        f"and {held} of {own} {_are(held)} claimed"
    )


# Time and order


def blocked(upstream: Sequence[Document], waits: int, *, is_line: bool) -> str:
    if is_line:
        return documents.behind(upstream[0]["name"], upstream[0]["uuid"], waits)
    return documents.blocked_sentence([each["name"] for each in upstream[:1]], waits)


def downstream(row: Downstream, now: datetime) -> str:
    if row.state == "half-open":
        return f"The downstream {row.name} is tried by one attempt; the others wait for its end."
    if row.not_before is not None and row.not_before > now:
        does = "fails" if row.state == "open" else "refuses calls"
        return f"The downstream {row.name} {does}: it is not called before {time(row.not_before)}."
    if row.state == "open":
        return f"The downstream {row.name} fails: one attempt tries it next."
    return f"The downstream {row.name} is called {row.per_second:.3g} times a second at most."


def _in(at: datetime, now: datetime) -> str:
    return f"in {text.duration(at - now)}, at {time(at)}"


def retry(number: int, most: int, error: str, at: datetime, now: datetime) -> str:
    after = f' after "{error}"' if error else ""
    return f"Retry {number} of {most}{after} is due {_in(at, now)}."


def deferred(at: datetime, now: datetime) -> str:
    return f"Its handler has deferred it: it is due again {_in(at, now)}."


# Daemons


def unserved(
    alive: int, last: Document | None, record: Mapping[str, Any] | None, module: str = ""
) -> str:
    """``module`` is the one that declares the Type, if daemons do not import it."""
    told = "No daemon serves it" if alive else text.NO_DAEMON
    who = name(last) if last is not None and last["host"] else (record or {}).get("who")
    if who:
        told += f". The last that served it was {who}"
    if module:
        told += f". {IMPORTED}; it is declared in {module}"
    elif alive:
        told += ". A daemon knows the Types of the code with which it started"
    return f"{told}."


def quiet(aims: Collection[str]) -> str:
    return f"What serves it is {' or '.join(sorted(aims))}."


def busy(workers: int, types: Sequence[tuple[str, int]], longest: Document, now: datetime) -> str:
    named = ", ".join(f"{count} with {type}" for type, count in types)
    many = "The only worker that serves it is" if workers == 1 else f"All {workers} workers are"
    told = f"{many} busy: {named}"
    if not longest["since"]:
        return f"{told}."
    since = text.age(datetime.fromisoformat(longest["since"]), now)
    return f"{told}; the longest since {since} ({longest['instance']})."


# The queue


def counted(number: int) -> str:
    """Return a bounded count of Tasks in words: "12,000", or "50,000 or more"."""
    return f"{number:,}{' or more' if number >= MOST_COUNTED else ''}"


def behind(found: Queued) -> str:
    parts = []
    if found.ahead:
        above = f", {counted(found.above)} of them by a higher priority" if found.above else ""
        parts.append(f"{counted(found.ahead)} of its lane {_are(found.ahead)} before it{above}")
    turns = [f"{counted(found.beside)} in other lanes of its Type"] if found.beside else []
    turns += [f"{len(found.rivals)} other Type{_s(len(found.rivals))}"] if found.rivals else []
    if turns:
        take = "takes" if len(found.rivals) + found.beside == 1 else "take"
        parts.append(f"{' and '.join(turns)} {take} turns with it")
    told = "; ".join(parts)
    return f"{told[0].upper()}{told[1:]}."


def alone(lost: int) -> str:
    attempts = "An attempt of it was" if lost == 1 else f"{lost} attempts of it were"
    return f"{attempts} lost: so it runs alone, in a worker that holds nothing else."


def transaction(found: OpenTransaction, now: datetime) -> str:
    of = f" of {found.application!r}" if found.application else ""
    parts = []
    if found.since is not None:
        parts.append(f" has been open for {text.age(found.since, now)}")
    if found.locked:
        what = "its row" if found.locked == found.ROW else f"the table {found.locked}"
        parts.append(f" has locked {what} in the database")
    told = " and".join(parts)
    if found.statement_since is not None:
        told += f"; its last statement began {text.age(found.statement_since, now)} ago"
    if found.waits_for_it:
        told += f"; {found.waits_for_it} wait for its locks"
    effect = "no daemon can claim it" if found.locked == found.ROW else "no daemon can claim"
    if not found.locked:
        effect = "nobody can claim what it has locked"
    return f"A transaction{of} ({found.user}, process {found.pid} of the database){told}: {effect}."


# The estimate of the start, in words.


def start_sentence(estimate: Estimate | None) -> str:
    """Return "Starts in about 2 min (1 to 6).", or why that is unknown; "" without an estimate."""
    if estimate is None:
        return ""
    if estimate.why == "many" and estimate.low is not None:
        if estimate.likely is None:
            return f"Starts in {_rounded(estimate.low)} at the earliest: many are before it."
        return f"Starts in about {_rounded(estimate.likely)}, or later: many wait in other lanes."
    if estimate.low is None or estimate.likely is None or estimate.high is None:
        return _OPEN.get(estimate.why, "Nobody knows when it starts: something has to be done.")
    low, likely, high = map(_rounded, (estimate.low, estimate.likely, estimate.high))
    unit = likely.split()[-1]
    if low == high:
        return f"Starts in about {likely}."
    if unit == low.split()[-1] == high.split()[-1]:
        return f"Starts in about {likely} ({low.split()[0]} to {high.split()[0]})."
    return f"Starts in about {likely} ({low} to {high})."


_OPEN = {
    "no-figures": "Nobody can tell when it starts: nothing of its Type has ended of late.",
    "blocked": "Nobody knows when it starts: what it waits for has to end first.",
    "in-line": "Nobody knows when it starts: what is before it in its line has to end first.",
}


def _rounded(value: timedelta) -> str:
    """Return a duration in words; below a second, in seconds with one decimal."""
    if value < timedelta(seconds=1):
        return f"{max(0.0, value.total_seconds()):.1f} s"
    return text.duration(value)
