"""Look up Types by identifier: in the database, and among those that this process declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ..conf import settings
from ..exceptions import UnknownType
from ..models import Type
from ..words.hints import did_you_mean
from .migrated import needs_tables
from .registry import is_identifier, is_internal, registry

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType

    # A Type as a row, as it is declared, or by its identifier.
    TypeLike: TypeAlias = str | Type | TaskType


@needs_tables
def get_type(identifier: str) -> Type:
    """Return the registered Type. Raises UnknownType, which suggests the closest identifier."""
    types = Type.objects.using(settings.DATABASE)
    # An invalid identifier is not looked up: the database may not accept its text.
    found = types.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if found is None:
        known = types.values_list("identifier", flat=True)
        raise UnknownType(f"No Type {identifier!r} is registered.{did_you_mean(identifier, known)}")
    return found


def sensitive_names(type: Type) -> frozenset[str]:
    """Return the names of a Type's sensitive arguments, by its row and by the code of this process.

    Code that was deployed a moment ago may know of one before the row does, and the other way.
    """
    found = set(type.sensitive or ())
    if type.identifier in registry and not is_internal(type.identifier):
        found |= set(registry.get(type.identifier).sensitive)
    return frozenset(found)


def declared(identifier: str) -> TaskType:
    """Return the Type as this process declares it, with its handler, to enqueue Instances of it.

    Raises UnregisteredHandler if only the database has the Type, UnknownType if nothing has it, or
    if it belongs to ATP, which alone enqueues Instances of it.
    """
    if is_internal(identifier):
        raise UnknownType(f"Type {identifier!r} belongs to ATP, which alone enqueues Instances.")
    if identifier in registry or not is_identifier(identifier):
        return registry.get(identifier)
    types = Type.objects.using(settings.DATABASE)
    is_known = types.filter(identifier=identifier).exists()
    return registry.handler_of(identifier) if is_known else registry.get(identifier)


def types_without_retention(identifier: str | None = None) -> list[str]:
    """Return the identifiers of the Types whose ended Instances are kept for ever.

    With ``identifier``, look only at this Type.
    """
    types = Type.objects.using(settings.DATABASE).filter(retention__isnull=True)
    types = types if identifier is None else types.filter(identifier=identifier)
    return list(types.values_list("identifier", flat=True))
