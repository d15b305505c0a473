"""Making a Submission of the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...exceptions import InvalidInputs
from ...middleware import carrying
from ...payload import binding, codec, own, sensitive
from ...rows.task import HOOKED
from ...store.values import Submission
from ...words.hints import seconds
from ...words.options import Options

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType


def submission_of(
    task_type: TaskType,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    identifier: str | None,
    limit: int | None,
) -> Submission:
    """Return the Submission of one call, for the store; ``options`` have been checked.

    ``limit`` is the largest size of serialized inputs, in bytes.
    """
    hooks = options.hooks
    return Submission(
        payload_of(task_type, args, kwargs, limit),
        identifier,
        options.collection,
        options.priority,
        options.run_after,  # type: ignore[arg-type]
        options.start_before,  # type: ignore[arg-type]
        options.created_by,
        HOOKED if hooks else None,
        own.of(
            timeout=seconds(options.timeout),
            max_retries=options.max_retries,
            unique=options.unique,
            hooks=[spec.hook.entry() for spec in hooks] or None,
            carried=carrying.saved(),
        ),
        options.unique,
        options.existing,
    )


def arguments_of(item: object) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return one item of enqueue_many() as ``(args, kwargs)``. Raises InvalidInputs."""
    if isinstance(item, Mapping):
        return (), item
    if isinstance(item, (tuple, list)):
        return tuple(item), {}
    raise InvalidInputs(
        f"enqueue_many() takes mappings of keyword arguments or tuples of arguments, not {item!r}."
    )


def payload_of(
    task_type: TaskType, args: Sequence[Any], kwargs: Mapping[str, Any], limit: int | None = None
) -> codec.Payload:
    """Return the serialized arguments of a call. Raises what :meth:`atp.TaskType.enqueue` does."""
    name, format = task_type.identifier, task_type.serializer
    signature, plain = task_type.signatures
    bound = binding.bind(name, signature, args, kwargs, plain)
    if task_type.sensitive:
        _refuse_mask(task_type, bound)
    if task_type.as_called:
        bound = binding.as_called(args, kwargs)
    codec.check_format(format)
    return codec.encode(bound, format=format, limit=limit, what=f"Inputs of {name!r}")


def _refuse_mask(task_type: TaskType, bound: Mapping[str, Any]) -> None:
    """Raise InvalidInputs for a mask: somebody gives inputs again that they have been shown."""
    name = sensitive.mask_given(bound, task_type.sensitive)
    if name is not None:
        raise InvalidInputs(
            f"Inputs of {task_type.identifier!r}: {name!r} is sensitive, and {sensitive.MASK!r} is "
            "only shown for it: give its value.",
            argument=name,
        )
