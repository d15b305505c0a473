"""The number of live and of waiting Instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..conf import settings
from ..models import Task
from .registry import registry
from .types import get_type

if TYPE_CHECKING:
    from .types import TypeLike


def size(type: TypeLike | None = None) -> int:
    """Return how many Instances are live: waiting or claimed. Raises UnknownType."""
    tasks = Task.objects.using(settings.DATABASE)
    if not type:
        return tasks.count()
    return tasks.filter(type__identifier=str(type)).count() or _none_of(type)


def _none_of(type: TypeLike) -> int:
    """Return 0 for a Type that there is. Raises UnknownType, with the closest that there is."""
    if str(type) not in registry:
        get_type(str(type))
    return 0


def waiting(
    type: TypeLike | None = None, collection: str | None = None, *, most: int | None = None
) -> int:
    """Return how many Instances wait in a Type, a lane, or everywhere; counted up to ``most``.

    Raises UnknownType.
    """
    tasks = Task.objects.using(settings.DATABASE).waiting()
    if type is not None:
        tasks = tasks.filter(type__identifier=str(type))
    if collection is not None:
        tasks = tasks.filter(collection=collection)
    return tasks[:most].count() or (0 if type is None else _none_of(type))
