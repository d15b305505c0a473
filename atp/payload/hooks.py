"""Hooks as data: each enqueues a Task when an Instance ends.

The row of a Type has hooks for all its Instances; an Instance may have more in its column
``own``. A hook names a Type. Its inputs are the facts of the end, and inputs of its own.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..states import State
from .codec import JSON, Payload

# The parameters that declare hooks, each with the state of the end that enqueues them.
STATES = {"on_finished": State.FINISHED, "on_failed": State.FAILED}
# The inputs that every hook gets: facts of the end.
FACTS = ("uuid", "type", "state", "reason")


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook: the Type of the Task that it enqueues, and the options of that enqueue.

    ``inputs`` are the hook's own, the text of a JSON object; ``own`` is text that :mod:`.own`
    writes.
    """

    on: str
    type: str
    inputs: str = ""
    priority: int = 0
    collection: str = ""
    own: str = ""

    def entry(self) -> dict[str, Any]:
        """Return the hook as a dict to store, without values that are defaults."""
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def payload(self, **facts: str) -> Payload:
        """Return the inputs of the hook: its own, and ``facts`` about the Instance that ended."""
        inputs = json.loads(self.inputs or "{}")
        return Payload(JSON, json.dumps(inputs | facts, ensure_ascii=False, separators=(",", ":")))


def read(entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return hooks that were stored, without the keys that a newer version has added."""
    known = {field.name for field in fields(Hook)}
    return [
        Hook(**{name: value for name, value in entry.items() if name in known})
        for entry in entries or ()
    ]


def of_end(state: str, *entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return the hooks in these stored lists that are for an end in this state, each once."""
    found = [hook for each in entries for hook in read(each) if STATES.get(hook.on) == state]
    return list(dict.fromkeys(found))
