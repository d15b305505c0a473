"""Count live and waiting Instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..conf import settings
from ..models import Task
from .migrated import needs_tables
from .registry import registry
from .types import get_type

if TYPE_CHECKING:
    from .types import TypeLike


@needs_tables
def size(type: TypeLike | None = None) -> int:
    """Return the number of live Instances, waiting or claimed. Raises UnknownType."""
    tasks = Task.objects.using(settings.DATABASE)
    if not type:
        return tasks.count()
    return tasks.filter(type__identifier=str(type)).count() or _none_of(type)


def _none_of(type: TypeLike) -> int:
    """Return 0 for an existing Type. Raises UnknownType, which suggests the closest identifier."""
    if str(type) not in registry:
        get_type(str(type))
    return 0


@needs_tables
def waiting(
    type: TypeLike | None = None, collection: str | None = None, *, most: int | None = None
) -> int:
    """Return the number of waiting Instances of a Type, of a lane, or of all Types.

    Counting stops at ``most``. Raises UnknownType.
    """
    tasks = Task.objects.using(settings.DATABASE).waiting()
    if type is not None:
        tasks = tasks.filter(type__identifier=str(type))
    if collection is not None:
        tasks = tasks.filter(collection=collection)
    return tasks[:most].count() or (0 if type is None else _none_of(type))
