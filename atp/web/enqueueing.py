"""Enqueueing over HTTP: what a user may enqueue, and which other Instances an enqueue may find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.db import transaction

from .. import queue
from ..conf import settings
from ..exceptions import DuplicateIdentifier
from ..models import Instance
from .authorization import require, rule
from .permissions import ENQUEUE, VIEW_INSTANCE, holds, lacking, refusal, to_enqueue

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType


def require_enqueue(user: Any, types: Iterable[TaskType]) -> None:
    """Raise PermissionDenied unless the user may enqueue all these Types with their options."""
    types = list(types)
    needed = dict.fromkeys(name for each in types for name in to_enqueue(each.options.existing))
    if lacked := lacking(user, needed):
        raise PermissionDenied(refusal(lacked))
    for each in types:
        require(user, (each.identifier, each.options.collection), ENQUEUE)


def enqueue(user: Any, calls: Sequence[queue.Call]) -> list[Instance]:
    """Enqueue calls that the user may enqueue, all or none, and return the Instances.

    Raises PermissionDenied if the user may not see or change an Instance that an enqueue has found:
    then nothing is written.
    """
    try:
        if rule() is None:
            return queue.enqueue_calls(calls)
        with transaction.atomic(using=settings.DATABASE):
            found = queue.enqueue_calls(calls)
            for call, instance in zip(calls, found, strict=True):
                if not instance.is_new:
                    require(user, instance, *to_enqueue(call.task_type.options.existing)[1:])
            return found
    except DuplicateIdentifier as error:
        if error.instance is None or holds(user, VIEW_INSTANCE, error.instance):
            raise
        # The message says which Instance has it, and in which state that is.
        raise type(error)("The identifier or the unique key is taken.") from None
