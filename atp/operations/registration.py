"""Register declared Types in the database (RFC 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..schedules.declaring import declared_schedules
from ..store import get_store
from . import admission
from .base import needs_tables
from .gates import declared_limits
from .registry import declared_hooks, registry

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType


@needs_tables
def register(*task_types: TaskType, by: str = "") -> set[str]:
    """Write declared Types, and the Types that their hooks enqueue, to the database (RFC 14).

    This updates rows that exist already. It recomputes the next slots of schedules if the rules of
    their time zones have changed. Returns the identifiers of the Types that were skipped because
    another process has locked their rows. Only a process that does not wait for locks, such as a
    daemon, skips Types.
    """
    store = get_store()
    hooks = {spec.type.identifier: spec.type for t in task_types for spec in declared_hooks.of(t)}
    task_types = (*task_types, *(hooks[n] for n in hooks.keys() - {str(t) for t in task_types}))
    locked = store.types.register([task_type.registration() for task_type in task_types], who=by)
    written = [task_type for task_type in task_types if str(task_type) not in locked]
    # Tasks can also wait under former names.
    former = {name: task_type for task_type in written for name in task_type.formerly}
    unnamed = store.types.name_downstreams({n: t.downstream for n, t in former.items()}, who=by)
    locked |= {str(former[name]) for name in unnamed}
    admission.forget_counts()
    locked |= store.control.declare({str(type): declared_limits(type) for type in written}, who=by)
    names = {str(type) for type in written}
    locked |= store.schedules.declare([s for s in declared_schedules if s.type in names], who=by)
    store.schedules.follow_rules(who=by)
    return locked


@needs_tables
def register_all(by: str = "") -> None:
    """Write all the Types that this process declares to the database."""
    register(*registry, by=by)


@needs_tables
def unregister(identifier: str, by: str = "") -> None:
    """Remove a Type from the database (RFC 14).

    Raises UnknownType, or TypeInUse if Instances of the Type exist.
    """
    get_store().types.unregister(identifier, who=by)
