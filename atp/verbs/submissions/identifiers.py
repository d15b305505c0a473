"""The identifiers of an enqueue, and what happens if one is taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...exceptions import InvalidOption
from ...words.options import OF_UNIQUE, Options, check_text

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType


def check_existing(options: Options, identifier: str | None) -> None:
    """Check that ``existing`` fits the other options of an enqueue. Raises InvalidOption.

    ``existing`` says what happens if an Instance has the identifier or the unique key already.
    """
    existing, unique = options.existing, options.unique
    if unique is not None and identifier is not None:
        raise InvalidOption(
            f"unique={unique!r} and an identifier both say what is there already: give one."
        )
    if existing in OF_UNIQUE and unique is None:
        raise InvalidOption(f"existing={existing!r} is about what has the unique key: give unique.")
    if existing == "redrive" and unique is not None:
        raise InvalidOption("existing='redrive' is about an identifier: what has a key is live.")
    if existing == "debounce" and options.run_after is None:
        raise InvalidOption("existing='debounce' moves the due time: give run_after.")
    if existing != "raise" and unique is None and identifier is None:
        raise InvalidOption(
            f"existing={existing!r} says what to do if the identifier is taken: give one."
        )


def identifiers_of(
    task_type: TaskType, count: int, identifiers: Iterable[str | None] | None
) -> list[str | None]:
    """Return the identifier of each of ``count`` Instances, or None. Raises InvalidOption."""
    named, unique = task_type.options.identifier, task_type.options.unique
    if unique is not None and count > 1:
        raise InvalidOption(
            f"using(unique={unique!r}) is for one Instance, not {count}: enqueue each by itself."
        )
    if identifiers is None:
        check_existing(task_type.options, named)
        if named is not None and count > 1:
            raise InvalidOption(
                f"using(identifier={named!r}) names one Instance, not {count}: "
                "give enqueue_many() its identifiers=[…]."
            )
        return [named] * count
    names = list(identifiers)
    if len(names) != count:
        raise InvalidOption(f"{len(names)} identifiers for {count} inputs.")
    for name in names:
        if name is not None:
            check_text("identifier", name, empty=False)
        if unique is not None:
            check_existing(task_type.options, name)
    return names
