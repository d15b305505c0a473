"""Pages of a list, by key: the thousandth page is as fast as the first.

A page key says where a page begins, by the values that the list is sorted by
and not by a number of rows to skip. Rows that are added or removed while somebody
turns pages cause no row to be shown twice or left out. Pages and API use the same keys.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import CharField, DateTimeField, Model, QuerySet

from ..exceptions import InvalidPageKey
from ..options import check_text

_AFTER, _BEFORE = "a", "b"
_LARGEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows of a list, in its order; ``next`` and ``previous`` are page keys, or None."""

    rows: list[Any]
    next: str | None = None
    previous: str | None = None


def page(rows: QuerySet[Any], order: Sequence[str], *, size: int, key: str | None = None) -> Page:
    """Return the :class:`Page` of a QuerySet that begins at ``key``, or the first page.

    The filters and ``select_related()`` of the QuerySet are kept, its order is not. ``order``
    names fields as ``order_by()`` does; together they are unique, and none may be null. It takes
    one query, or with a key one for each field at most. Raises InvalidPageKey.
    """
    if key is None:
        return _first(rows, order, size)
    way, values = _read(key, rows.model, order)
    if way == _AFTER:
        found, more = _beyond(rows, order, values, size)
        return Page(
            rows=found,
            next=key_after(found[-1], order) if more else None,
            previous=_key(_BEFORE, found[0], order) if found else None,
        )
    found, more = _beyond(rows, [_reversed(name) for name in order], values, size)
    if not more:  # the beginning of the list: as full as it can be
        return _first(rows, order, size)
    found.reverse()
    return Page(
        rows=found,
        next=key_after(found[-1], order),
        previous=_key(_BEFORE, found[0], order),
    )


def key_after(row: Model, order: Sequence[str]) -> str:
    """Return the key of the page that begins after this row."""
    return _key(_AFTER, row, order)


def _first(rows: QuerySet[Any], order: Sequence[str], size: int) -> Page:
    found = _some(rows, order, size + 1)
    more = len(found) > size
    return Page(rows=found[:size], next=key_after(found[size - 1], order) if more else None)


def _reversed(name: str) -> str:
    return name[1:] if name.startswith("-") else f"-{name}"


def _beyond(
    rows: QuerySet[Any], order: Sequence[str], values: Sequence[Any], size: int
) -> tuple[list[Any], bool]:
    """Return up to ``size`` rows that come after these values, and whether there are more."""
    found: list[Any] = []
    for stretch in _stretches(order, values):
        found += _some(rows.filter(**stretch), order, size + 1 - len(found))
        if len(found) > size:
            break
    return found[:size], len(found) > size


def _some(rows: QuerySet[Any], order: Sequence[str], number: int) -> list[Any]:
    """Return the first rows, up to ``number``.

    A subquery finds them by primary key alone, and only these rows are read. An index with all
    filtered fields is then enough to find them, and the database prefers that index. Otherwise it
    might walk the whole table by primary key, hoping to meet enough matching rows soon.
    """
    keys = rows.order_by(*order).values("pk")[:number]
    chosen = rows.model._base_manager.using(rows.db).filter(pk__in=keys)
    chosen.query.select_related = rows.query.select_related
    return list(chosen.order_by(*order))


def _stretches(order: Sequence[str], values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield conditions which together select all rows that come after these values.

    Each selects one stretch of an index on ``order``, and they come in its order, so the database
    reads no more rows than it returns. With one condition joined by OR, it would start at the first
    row with the same first value.
    """
    for last in reversed(range(len(order))):
        same = zip(order[:last], values[:last], strict=True)
        field, way = order[last].removeprefix("-"), "lt" if order[last].startswith("-") else "gt"
        yield {name.removeprefix("-"): value for name, value in same} | {
            f"{field}__{way}": values[last]
        }


def _key(way: str, row: Model, order: Sequence[str]) -> str:
    values = [getattr(row, name.removeprefix("-")) for name in order]
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
    text = json.dumps([way, *plain], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(key: str, model: type[Model], order: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the direction and the values in a key. Raises InvalidPageKey."""
    try:
        padded = key + "=" * (-len(key) % 4)
        text = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        way, *values = json.loads(text)
        if way in (_AFTER, _BEFORE) and len(values) == len(order):
            fields = [model._meta.get_field(name.removeprefix("-")) for name in order]
            return way, [_value(f, v) for f, v in zip(fields, values, strict=True)]
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        pass
    raise InvalidPageKey(f"{key!r} is not a page key of this list: begin with its first page.")


def _value(field: Any, value: Any) -> Any:
    if isinstance(field, DateTimeField):
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError(f"{value} has no offset")
        return time.astimezone(UTC)
    if isinstance(field, CharField):
        check_text(field.name, value)
        return value
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise ValueError(f"{value!r} is no key")
    return value
