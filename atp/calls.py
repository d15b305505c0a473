"""Calls of handlers that are to be: bound to the signature, serialized, ready for the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from . import binding, codec
from .exceptions import InvalidInputs, InvalidOption
from .options import check_text
from .registry import TaskType
from .store.values import Request


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a handler that is to be: a declared Type with its options, and arguments."""

    task_type: TaskType
    args: tuple = ()
    kwargs: Mapping = field(default_factory=dict)


def request_of(task_type, args, kwargs, options, identifier, limit):
    """Return what the store is asked to enqueue; ``options`` have been checked.

    ``limit`` is the largest size of serialized inputs, in bytes.
    """
    return Request(
        _payload(task_type, args, kwargs, limit),
        identifier,
        options.collection,
        options.priority,
        options.run_after,
        options.start_before,
        options.created_by,
        options.existing,
    )


def arguments_of(item):
    """Return the arguments that an item of enqueue_many() stands for, as ``(args, kwargs)``.

    Raises InvalidInputs.
    """
    if isinstance(item, Mapping):
        return (), item
    if isinstance(item, (tuple, list)):
        return tuple(item), {}
    raise InvalidInputs(
        f"enqueue_many() takes mappings of keyword arguments or tuples of arguments, not {item!r}."
    )


def _payload(task_type, args, kwargs, limit):
    name, format = task_type.identifier, task_type.serializer
    signature, plain = task_type.signatures
    bound = binding.bind(name, signature, args, kwargs, plain)
    codec.check_format(format)
    return codec.encode(bound, format=format, limit=limit, what=f"Inputs of {name!r}")


def identifiers_of(task_type, count, identifiers):
    """Return the identifier of each of ``count`` Instances, or None. Raises InvalidOption."""
    own = task_type.options.identifier
    if identifiers is None:
        if own is not None and count > 1:
            raise InvalidOption(
                f"using(identifier={own!r}) names one Instance, not {count}: "
                "give enqueue_many() its identifiers=[…]."
            )
        return [own] * count
    names = list(identifiers)
    if len(names) != count:
        raise InvalidOption(f"{len(names)} identifiers for {count} inputs.")
    for name in names:
        if name is not None:
            check_text("identifier", name, empty=False)
    return names
