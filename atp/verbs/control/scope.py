"""The scope of a gate or a limit: a Type, one of its lanes, or everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...exceptions import InvalidGate, InvalidOption
from ...store.values import Scope
from ...words.options import check_text
from ..types import get_type

if TYPE_CHECKING:
    import builtins

    from ...exceptions import ATPError
    from ..types import TypeLike


def scope_of(
    type: TypeLike | None = None,
    collection: str | None = None,
    error: builtins.type[ATPError] = InvalidGate,
) -> Scope:
    """Return the :class:`Scope`. Raises UnknownType, or ``error`` if the collection is invalid."""
    if collection is not None:
        if type is None:
            raise error("A lane is of a Type: say which.")
        try:
            check_text("collection", collection)
        except InvalidOption as wrong:
            raise error(str(wrong)) from None
    return Scope(None if type is None else get_type(str(type)), collection)
