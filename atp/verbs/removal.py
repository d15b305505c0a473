"""The verbs that remove Instances: all whose retention is over, or given ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..conf import settings
from ..exceptions import IllegalTransition, WaitTimeout
from ..models import Node
from ..states import State
from ..store import get_store
from ..words import wording
from .actor import check_by
from .instances import CHUNK, cancel, chunks, meant, refresh
from .migrated import needs_tables

if TYPE_CHECKING:
    from ..models import Instance
    from .instances import InstanceLike


@needs_tables
def purge(type: str | None = None, by: str = "") -> int:
    """Remove terminal Instances whose Type's retention is over; return their number."""
    check_by(by)
    removed = 0
    while count := get_store().purge(type=type, limit=CHUNK, who=by):
        removed += count
    return removed


@needs_tables
def delete(*instances: InstanceLike, by: str = "", cancel: bool = False, wait: float = 0.0) -> int:
    """Remove terminal Instances, with inputs, response, files and log (RFC 14).

    Returns their number. The log of their Type records the removal. Raises IllegalTransition,
    with nothing removed, if one is live or is a node of a graph. With ``cancel``, live Instances
    are cancelled first. Waiting ones are then removed at once; a claimed one is removed only if it
    ends within ``wait`` seconds, and otherwise stays, cancelled, to be removed later.
    """
    instances = meant(instances, by)
    refresh(instances)
    for chunk in chunks([instance.pk for instance in instances]):
        _refuse_nodes(chunk)
    if cancel:
        _end([instance for instance in instances if not instance.is_terminal], by, wait)
        instances = [instance for instance in instances if instance.is_terminal]
    for instance in instances:
        if not instance.is_terminal:
            raise IllegalTransition(
                f"{instance.uuid} cannot be removed: it is {wording.state(instance)}.",
                state=State(instance.state),
            )
    keys = [instance.pk for instance in instances]
    store = get_store()
    return sum(store.purge(instances=chunk, limit=CHUNK, who=by) for chunk in chunks(keys))


def _refuse_nodes(keys: Sequence[int]) -> None:
    """Raise IllegalTransition if one is a node: other nodes of its graph may need its result."""
    nodes = Node.objects.using(settings.DATABASE).select_related("instance", "graph")
    node = nodes.filter(pk__in=keys, graph__isnull=False).first()
    if node is not None:
        raise IllegalTransition(
            f"{node.instance} cannot be removed: it is {node} of the graph {node.graph}, which is "
            "removed as a whole when no Type of its nodes keeps them any longer.",
            state=State(node.instance.state),
        )


def _end(instances: list[Instance], by: str, wait: float) -> None:
    """Cancel live Instances, and wait up to ``wait`` seconds for the claimed ones to end."""
    if not instances:
        return
    try:
        cancel(*instances, by=by)
    except IllegalTransition:
        pass  # that one has ended by itself, or is about to be
    until = time.monotonic() + wait
    for instance in instances:
        if wait and not instance.is_terminal:
            with suppress(WaitTimeout):
                instance.wait(max(0.0, until - time.monotonic()))
    refresh(instances)
