"""Hooks as data: each enqueues a Task when an Instance ends.

The row of a Type has hooks for all its Instances; an Instance may have more in its column
``own``. A hook names a Type. Its inputs are the facts of the end, and inputs of its own.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...payload.codec import JSON, Payload
from ...states import State

# The parameters that declare hooks, each with the state of the end that enqueues them.
STATES = {"on_finished": State.FINISHED, "on_failed": State.FAILED}
# The inputs that every hook gets: facts of the end.
FACTS = ("uuid", "type", "state", "reason")
# The facts of the Instance that a hook gets if its handler has a parameter of this name.
MORE = ("identifier", "collection")


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook: the Type of the Task that it enqueues, and the options of that enqueue.

    ``inputs`` are the hook's own, the text of a JSON object; ``own`` is text that :mod:`.own`
    writes. ``more`` are names of MORE, separated by spaces. A version that does not know them may
    have written the same hook without: it is the same hook.
    """

    on: str
    type: str
    inputs: str = ""
    priority: int = 0
    collection: str = ""
    own: str = ""
    more: str = field(default="", compare=False)

    def entry(self) -> dict[str, Any]:
        """Return the hook as a dict to store, without values that are defaults."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }

    def payload(self, ended: object) -> Payload:
        """Return the inputs of the hook: its own, and facts, which are attributes of ``ended``."""
        inputs = json.loads(self.inputs or "{}")
        inputs |= {name: getattr(ended, name) for name in (*FACTS, *self.more.split())}
        return Payload(JSON, json.dumps(inputs, ensure_ascii=False, separators=(",", ":")))


def read(entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return hooks that were stored, without the keys that a newer version has added."""
    known = {each.name for each in fields(Hook)}
    return [
        Hook(**{name: value for name, value in entry.items() if name in known})
        for entry in entries or ()
    ]


def of_end(state: str, *entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return the hooks in these stored lists that are for an end in this state, each once."""
    found = [hook for each in entries for hook in read(each) if STATES.get(hook.on) == state]
    return list(dict.fromkeys(found))
