"""Causes of the daemons: none serves the Type, those that do claim nothing, or all are busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ....verbs.registry import registry
from ....verbs.table import DAEMON
from ....words import orders
from ....words.orders import Mode
from .. import helps, sentences
from ..facts import Facts
from ..values import Reason

# The maximum number of Types that are named as keeping workers busy.
MOST_TYPES = 3
RESTART = "Start a daemon that serves it, or restart one: with --reload it does so by itself"


def unserved(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if no living daemon serves the Type."""
    if not facts.is_waiting or facts.serving:
        return
    gone = [each for each in facts.daemons if facts.identifier in each["types"]]
    last = max(gone, key=lambda each: each["seen"]) if gone else None
    found = facts.served_last or {}
    module = _unreached_module(facts) if facts.living and not last and not found else ""
    restart = f"Import {module} in a tasks.py, and restart the daemon" if module else RESTART
    yield Reason(
        code="unserved",
        sentence=sentences.unserved(len(facts.living), last, facts.served_last, module),
        facts={
            "alive": len(facts.living),
            "module": module or None,
            "last": sentences.name(last) if last else found.get("who"),
            "release": last["release"] if last else None,
            "releases": sorted({each["release"] for each in facts.living if each["release"]}),
        },
        since=last["seen"] if last else None,
        helps=helps.daemon(restart) if facts.living else helps.daemon(),
    )


def _unreached_module(facts: Facts) -> str:
    """Return the module that declares the Type, if daemons with this code do not import it."""
    if facts.type is None or registry.is_reached(facts.identifier):
        return ""
    # The name of a function inside of another begins with that of the other.
    return facts.type.handler.partition(".<locals>")[0].rpartition(".")[0]


def quiet(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if all daemons that serve the Type are quiet or stopping."""
    if not facts.is_waiting or not facts.serving or facts.claiming:
        return
    aims = {str(orders.aim(each["mode"], each["request"])) for each in facts.serving}
    resumable = [
        each for each in facts.serving if orders.aim(each["mode"], each["request"]) is Mode.QUIET
    ]
    yield Reason(
        code="quiet",
        sentence=sentences.quiet(aims),
        facts={"daemons": [sentences.name(each) for each in facts.serving], "modes": sorted(aims)},
        helps=helps.verb(DAEMON, "resume", resumable[0]["uuid"]) if resumable else helps.daemon(),
    )


def busy(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if all workers that could run the Task are running something else."""
    if not facts.is_waiting or facts.is_blocked or not facts.is_busy:
        return
    types = Counter(worker["type"] for worker in facts.running).most_common(MOST_TYPES)
    longest = min(facts.running, key=lambda worker: str(worker["since"]))
    yield Reason(
        code="workers-busy",
        sentence=sentences.busy(facts.places, types, longest, facts.now),
        facts={
            "workers": facts.places,
            "types": dict(types),
            "longest": {name: longest[name] for name in ("instance", "type", "since")},
        },
        helps=helps.daemon("Start another daemon, or one with more workers"),
    )
