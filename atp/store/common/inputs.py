"""The shapes of inputs in the portable store: Python reads the inputs one by one."""

import json
from collections import defaultdict

from ...graphs.placeholders import TAG
from ...models import Task
from ...payload import codec
from ...payload.binding import inputs_shape
from ..facts import Shape
from ..protocol import Inputs as InputsContract

_COLUMNS = ("pk", "type_id", "instance__inputs__format", "instance__inputs__data")


class Inputs(InputsContract):
    """The inputs of live Instances; ``store`` is the store of the queue."""

    def __init__(self, store):
        self._store = store

    def shapes(self, after=0, *, limit=5_000):
        tasks = self._store.rows(Task).filter(pk__gt=after).order_by("pk")
        found, last = defaultdict(list), None
        for key, type, format, data, created in tasks.values_list(*_COLUMNS, "instance__created")[
            :limit
        ]:
            last = key
            found[type, format, *_shape(format, data)].append((key, created))
        return [_group(facts, members) for facts, members in found.items()], last


def _shape(format, data):
    """Return the number of positional arguments, the names, and whether results may be in them."""
    if format != codec.JSON:
        return 0, None, False
    try:
        inputs = json.loads(data)
    except (ValueError, RecursionError):
        inputs = None
    if not isinstance(inputs, dict) or not isinstance(inputs.get("*", []), list):
        return 0, None, False
    return *inputs_shape(inputs), f'"{TAG}"' in data


def _group(facts, members):
    type, format, placed, names, has_results = facts
    return Shape(
        type=type,
        format=format,
        placed=placed,
        names=names,
        has_results=has_results,
        keys=tuple(key for key, _ in members),
        since=min((created for _, created in members if created), default=None),
    )
