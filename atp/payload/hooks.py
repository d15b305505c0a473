"""Hooks as data: what is enqueued when an Instance ends.

They stand in the row of a Type, for all of its Instances, and in what an Instance has of its
own. A hook names a Type; what it is given are the facts of the end, and inputs of its own.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..states import State
from .codec import JSON, Payload

# The names by which hooks are given, and the state at the end that each is about.
STATES = {"on_finished": State.FINISHED, "on_failed": State.FAILED}
# What every hook is given.
FACTS = ("uuid", "type", "state", "reason")


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook: the Type of the Task that it enqueues, and how that is enqueued.

    ``inputs`` are those of its own, as an object in JSON; ``own`` is as :mod:`.own` writes it.
    """

    on: str
    type: str
    inputs: str = ""
    priority: int = 0
    collection: str = ""
    own: str = ""

    def entry(self) -> dict[str, Any]:
        """Return it as it is kept, without what is as usual."""
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def payload(self, **facts: str) -> Payload:
        """Return its inputs at the end of an Instance."""
        inputs = json.loads(self.inputs or "{}")
        return Payload(JSON, json.dumps(inputs | facts, ensure_ascii=False, separators=(",", ":")))


def read(entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return hooks that were kept. What a newer version has added to them is left out."""
    known = {field.name for field in fields(Hook)}
    return [
        Hook(**{name: value for name, value in entry.items() if name in known})
        for entry in entries or ()
    ]


def of_end(state: str, *entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return the hooks that an end in this state has, each once."""
    found = [hook for each in entries for hook in read(each) if STATES.get(hook.on) == state]
    return list(dict.fromkeys(found))
