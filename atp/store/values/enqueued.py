"""Instances that have just been enqueued: a sequence that creates each object on demand."""

from collections.abc import Callable, Sequence
from operator import eq
from typing import Any

from ...models import Instance


class Enqueued(Sequence[Instance]):
    """Instances that have just been enqueued; each object is created when it is first accessed.

    Most callers look at few of many Instances, or at none. To create an object takes longer than
    to enqueue the Instance.
    """

    def __init__(self, facts: list[Any], make: Callable[..., Instance]) -> None:
        self._items = facts
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @property
    def keys(self) -> list[int]:
        """The keys of all Instances; no object is created."""
        return [item.pk if isinstance(item, Instance) else item[0] for item in self._items]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        item = self._items[index]
        if not isinstance(item, Instance):
            item = self._items[index] = self._make(*item)
        return item

    def __eq__(self, other: Any) -> bool:
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} Instances>"
