"""Convert an explanation to sentences, and to a document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from ... import placement, text
from ...models import Downstream, Gate, Instance
from ...operations.registry import DAEMON_IMPORTS
from ...store.facts import OpenTransaction
from .. import documents
from ..documents import Document
from .facts import MOST_COUNTED, Estimate, Explanation, FullLimit, QueuePosition


def document(explanation: Explanation) -> Document:
    """Return an explanation as plain values by name; ``told`` is the estimate as a sentence."""
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


# A sentence for each cause.

NEW = "Nothing holds back a new Instance. It waits only for its turn and for a free worker."
READY = "Nothing holds it back. It waits only for its turn and for a free worker."


def time(moment: datetime) -> str:
    """Return a time with the name of the current time zone."""
    return f"{text.moment(moment)} {text.time_zone_name()}"


def name(daemon: Document | None) -> str:
    """Return the name of a daemon with its release, or "a daemon" if its name was redacted."""
    if daemon is None or not daemon["host"]:
        return "a daemon"
    release = f" (release {daemon['release']})" if daemon["release"] else ""
    return f"{daemon['host']}:{daemon['pid']}{release}"


def place(row: Any) -> str:
    """Return the words for the target of a Gate or a Limit, as the beginning of a sentence."""
    if row.type is None:
        return "Everything"
    if row.collection is None:
        return str(row.type.identifier)
    if not row.collection:
        return f"{row.type.identifier} without a collection"
    return f"{row.type.identifier}, collection {row.collection!r},"


def _by_actor(who: str) -> str:
    return f" by {who}" if who else ""


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


# Instances that do not exist or have ended


def no_such(uuid: str, removal: Document | None) -> str:
    if removal is None:
        return (
            f"There is no Instance {uuid}. It was purged after the retention of its Type, or it "
            "never existed."
        )
    subject = removal["subject"].removeprefix("type:")
    return (
        f"There is no Instance {uuid}. It belonged to {subject} and was removed"
        f"{_by_actor(removal['who'])}."
    )


def ended(instance: Instance, error: str) -> str:
    at = time(instance.finished) if instance.finished else "an unknown time"
    cause = f": {error}" if error else ""
    return f"It ended as {text.describe_state(instance)} at {at}{cause}".rstrip(".") + "."


# Instances that a daemon holds


def cancel_asked(command: Document | None, killed: datetime | None) -> str:
    who = "" if command is None else command["who"]
    words = f"It was sent a cancel command{_by_actor(who)}, but has not ended yet"
    return f"{words}." if killed is None else f"{words}. It will be killed at {time(killed)}."


def holder_lost(holder: Document, others: int) -> str:
    words = f"It is held by {name(holder)}, which is lost"
    if others:
        return f"{words}. Another daemon will rescue it within a second or two, and run it again."
    return f"{words}, and no other daemon is alive to rescue it."


def holder_late(holder: Document, ends: datetime | None) -> str:
    words = f"It is held by {name(holder)}, which has not renewed its lease in time"
    if ends is None:
        return f"{words}."
    return f"{words}. Another daemon will rescue it if the lease is not renewed by {time(ends)}."


def paused(who: str) -> str:
    return f"It was paused{_by_actor(who)}."


def running(
    figures: Mapping[str, Any], began: datetime, until: datetime | None, now: datetime
) -> str:
    """Return the sentence for the Reason "running"; ``figures`` are the facts of that Reason."""
    parts = [f"It runs: attempt {figures['attempt']}, since {text.age(began, now)}"]
    if figures["is_slow"]:
        p99 = text.duration(timedelta(seconds=figures["p99"]))
        runs = figures["runs"]
        if runs < 100:
            parts.append(f"longer than the last {runs} of its Type, which took up to {p99}")
        else:
            parts.append(f"longer than 99 of 100 of its Type, which end within {p99}")
    if figures["silent_since"] > began or figures["is_slow"]:
        parts.append(f"its log has been silent for {text.age(figures['silent_since'], now)}")
    if until is not None:
        parts.append(f"it is killed at {time(until)}")
    return "; ".join(parts) + "."


def loop_blocked(guilty: Document, *, is_own: bool, others: int) -> str:
    """Return the sentence for a blocked loop; ``guilty`` is the worker's document that blocks it.

    ``others`` is the number of the other attempts in the loop.
    """
    since = text.duration(timedelta(seconds=guilty["blocks"]))
    if is_own:
        wait = "no other attempt waits" if not others else f"{others} other attempts wait"
        wait = "one other attempt waits" if others == 1 else wait
        return f"It blocks its loop for {since}, and {wait} for it."
    return f"Its loop is blocked for {since} by {guilty['type']} {guilty['instance']}."


def claimed(holder: Document | None, *, alone: bool) -> str:
    waits = "a worker that runs nothing else" if alone else "a free worker"
    return f"It is claimed by {name(holder)} and waits there for {waits}."


# Gates, limits and downstreams


def shut(gate: Gate) -> str:
    done = "to be dropped" if gate.mode == "drop" else text.MODES[gate.mode]
    until = f" until {time(gate.until)}" if gate.until else ""
    reason = f" ({gate.reason})" if gate.reason else ""
    return f"{place(gate)} is {done}{_by_actor(gate.who)}{until}{reason}"


def full(found: FullLimit, lane: str | None = None) -> str:
    row, held = found.limit, found.held
    if found.kind == "rate":
        assert found.at is not None
        return f"{place(row)} is limited to {row.rate}, and the next may start at {time(found.at)}"
    if found.kind == "running":
        assert row.max_running is not None
        return (
            f"{place(row)} is limited to {text.number(row.max_running)} at once, and "
            f"{text.number(held)} {_are(held)} claimed"
        )
    assert row.max_running_per_collection is not None
    own = f"collection {lane!r}" if lane else "the Tasks without a collection"
    return (
        f"{place(row)} is limited to {text.number(row.max_running_per_collection)} at once in each "
        f"collection, and {text.number(held)} of {own} {_are(held)} claimed"
    )


# Time and order


def blocked(upstream: Sequence[Document], waits: int, *, is_line: bool) -> str:
    if is_line:
        return documents.describe_line(upstream[0]["name"], upstream[0]["uuid"], waits)
    return documents.describe_blocked([each["name"] for each in upstream[:1]], waits)


def downstream(row: Downstream, now: datetime) -> str:
    if row.state == "half-open":
        return (
            f"The downstream {row.name} is tried by one attempt; other attempts wait for its end."
        )
    if row.not_before is not None and row.not_before > now:
        does = "fails" if row.state == "open" else "refuses calls"
        return f"The downstream {row.name} {does}. It is not called before {time(row.not_before)}."
    if row.state == "open":
        return f"The downstream {row.name} fails. Next, a single attempt tries it."
    return f"The downstream {row.name} is called at most {row.per_second:.3g} times a second."


def _due_words(at: datetime, now: datetime) -> str:
    return f"{text.due(at, now)}, at {time(at)}"


def retry(number: int, most: int, error: str, at: datetime, now: datetime) -> str:
    after = f' after "{error}"' if error else ""
    return f"Retry {number} of {most}{after} is due {_due_words(at, now)}."


def deferred(at: datetime, now: datetime) -> str:
    return f"Its handler has deferred it. It is due again {_due_words(at, now)}."


# Daemons


def unserved(
    alive: int,
    last: Document | None,
    record: Mapping[str, Any] | None,
    module: str = "",
    lacking: str = "",
) -> str:
    """Return the sentence for a Type that no daemon serves.

    ``alive`` is the number of living daemons, ``last`` the last daemon that served the Type, and
    ``record`` the last claim. ``module`` is the module that declares the Type, or "" if daemons
    import that module. ``lacking`` says what no daemon has, or is "".
    """
    if lacking:
        return f"{lacking[0].upper()}{lacking[1:]}."
    words = "No daemon serves it" if alive else text.NO_DAEMON
    who = name(last) if last is not None and last["host"] else (record or {}).get("who")
    if who:
        words += f". The last daemon that served it was {who}"
    if module:
        words += f". {DAEMON_IMPORTS}; it is declared in {module}"
    elif alive:
        words += ". A daemon knows only the Types in the code with which it started"
    return f"{words}."


def engine_away(executor: str, error: str) -> str:
    return (
        f"The engine of the executor {executor!r} is away, so no daemon claims anything for it: "
        f"{error.rstrip('.')}."
    )


def engine_lacks(executor: str, lacks: str, first: str = "No") -> str:
    """Return the sentence for a Type that takes what no host has; "" stands for any host.

    ``first`` is the first word, if the sentence is part of another.
    """
    if not lacks:
        return f"The cluster of the executor {executor!r} has no host."
    return f"{first} host in the cluster of the executor {executor!r} has {lacks}"


def engine_full(executor: str, places: int, room: int) -> str:
    others = places - room
    used = f"; other users of the cluster take {others} of its {places} places" if others else ""
    return f"The cluster of the executor {executor!r} has no free place{used}."


def quiet(modes: Collection[str]) -> str:
    return f"Every daemon that serves it is {' or '.join(sorted(modes))}."


def in_use(wanted: Mapping[str, int], capacity: Mapping[str, int], used: Mapping[str, int]) -> str:
    """Return the sentence for a Type whose resources other attempts take.

    ``capacity`` and ``used`` are the sums of all daemons that serve the Type.
    """
    taken = ", ".join(
        f"{placement.words(name, used.get(name, 0))} of "
        f"{placement.words(name, capacity.get(name, 0)).partition('=')[2]}"
        for name in wanted
    )
    return (
        f"It takes {placement.described(wanted)}, and no daemon that serves it has that much left: "
        f"in use are {taken}."
    )


def busy(workers: int, types: Sequence[tuple[str, int]], longest: Document, now: datetime) -> str:
    named = ", ".join(f"{count} with {type}" for type, count in types)
    many = "The only worker that serves it is" if workers == 1 else f"All {workers} workers are"
    words = f"{many} busy: {named}"
    if not longest["since"]:
        return f"{words}."
    since = text.age(datetime.fromisoformat(longest["since"]), now)
    return f"{words}; the longest since {since} ({longest['instance']})."


# The queue


def counted(number: int) -> str:
    """Return a count of Tasks as text: "12,000", or "50,000 or more" from MOST_COUNTED on."""
    return f"{text.number(number)}{' or more' if number >= MOST_COUNTED else ''}"


def behind(found: QueuePosition) -> str:
    parts = []
    if found.ahead:
        above = f", {counted(found.above)} with a higher priority" if found.above else ""
        tasks = f"{counted(found.ahead)} Task{_plural(found.ahead)} of its lane"
        parts.append(f"{tasks} {_are(found.ahead)} ahead of it{above}")
    turns = [f"{counted(found.beside)} in other lanes of its Type"] if found.beside else []
    turns += [f"{len(found.rivals)} other Type{_plural(len(found.rivals))}"] if found.rivals else []
    if turns:
        take = "takes" if len(found.rivals) + found.beside == 1 else "take"
        parts.append(f"{' and '.join(turns)} {take} turns with it")
    words = "; ".join(parts)
    return f"{words[0].upper()}{words[1:]}."


def alone(lost: int) -> str:
    attempts = "One of its attempts was" if lost == 1 else f"{lost} of its attempts were"
    return f"{attempts} lost, so it runs alone, in a worker that holds nothing else."


def transaction(found: OpenTransaction, now: datetime) -> str:
    owner = f" of {found.application!r}" if found.application else ""
    parts = []
    if found.since is not None:
        parts.append(f" has been open for {text.age(found.since, now)}")
    if found.locked:
        what = "its row" if found.locked == found.ROW else f"the table {found.locked}"
        parts.append(f" has locked {what} in the database")
    words = " and".join(parts)
    if found.statement_since is not None:
        words += f"; its last statement began {text.ago(found.statement_since, now)}"
    if found.waits_for_it:
        words += f"; sessions that wait for its locks: {text.number(found.waits_for_it)}"
    effect = "no daemon can claim it" if found.locked == found.ROW else "no daemon can claim Tasks"
    if not found.locked:
        effect = "no daemon can claim Tasks that it has locked"
    process = f"({found.user}, process {found.pid} of the database)"
    return f"A transaction{owner} {process}{words}, so {effect}."


# The estimate of the start, in words.


def start_sentence(estimate: Estimate | None) -> str:
    """Return a sentence such as "Starts in about 2 min (1 to 6)."; "" without an estimate.

    If the start is unknown, the sentence says why.
    """
    if estimate is None:
        return ""
    if estimate.why == "many" and estimate.low is not None:
        if estimate.likely is None:
            return (
                f"Starts in {_round(estimate.low)} at the earliest, because many are ahead of it."
            )
        return f"Starts in about {_round(estimate.likely)}, or later: other lanes have many Tasks."
    if estimate.low is None or estimate.likely is None or estimate.high is None:
        unknown = "Its start cannot be estimated, because a cause must be resolved first."
        return _UNKNOWN_STARTS.get(estimate.why, unknown)
    low, likely, high = map(_round, (estimate.low, estimate.likely, estimate.high))
    unit = likely.split()[-1]
    if low == high:
        return f"Starts in about {likely}."
    if unit == low.split()[-1] == high.split()[-1]:
        return f"Starts in about {likely} ({low.split()[0]} to {high.split()[0]})."
    return f"Starts in about {likely} ({low} to {high})."


_UNKNOWN_STARTS = {
    "no-figures": "Its start cannot be estimated, because none of its Type has ended recently.",
    "blocked": "Its start cannot be estimated, because it waits for other nodes to end.",
    "in-line": "Its start cannot be estimated, because it waits for Instances ahead of it to end.",
}


def _round(value: timedelta) -> str:
    """Return a duration as text; below one second, in seconds with one decimal."""
    if value < timedelta(seconds=1):
        return f"{max(0.0, value.total_seconds()):.1f} s"
    return text.duration(value)
