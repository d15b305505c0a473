"""Split a list into pages by key, so that the thousandth page is as fast as the first.

A page key contains the values of the row where the page begins, not a number of rows to skip. So if
rows are added or removed while a user turns pages, no other row is repeated or skipped. The HTML
pages and the API use the same keys.
"""

import base64
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import CharField, DateTimeField, Model, QuerySet

from ..exceptions import InvalidPageKey
from ..options import check_text
from ..querysets import Search

_AFTER, _BEFORE = "a", "b"
_LARGEST = 2**63 - 1
# A search reads so many rows first, and then twice as many each time, for at most so many seconds.
_FIRST_PORTION, _LONGEST = 8_000, 1.0


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows of a list, in order.

    ``next`` is the key of the following page, ``previous`` the key of the page before; each is None
    if there is no such page. ``reached`` is the last row that was read, if a search stopped before
    the page was full; ``next`` then continues the search. Otherwise it is None.
    """

    rows: list[Any]
    next: str | None = None
    previous: str | None = None
    reached: Any = None


def page(rows: QuerySet[Any], order: Sequence[str], *, size: int, key: str | None = None) -> Page:
    """Return the :class:`Page` of a QuerySet that begins at ``key``; without a key, the first page.

    The QuerySet keeps its filters and ``select_related()``, but not its order. ``order`` names
    fields as ``order_by()`` does. Together these fields must be unique, and none of them may be
    null. The function takes one query, or with a key at most one query for each field.

    If the QuerySet has a :class:`~atp.querysets.Search`, the page can be shorter than ``size``, and
    has no ``previous``; ``order`` must then be one field. Raises InvalidPageKey.
    """
    search = getattr(rows, "search", None)
    if search is not None:
        return _search_page(rows, search, order, size, key)
    if key is None:
        return _first_page(rows, order, size)
    way, values = _parse_key(key, rows.model, order)
    if way == _AFTER:
        found, more = _fetch_after(rows, order, values, size)
        return Page(
            rows=found,
            next=key_after(found[-1], order) if more else None,
            previous=_page_key(_BEFORE, found[0], order) if found else None,
        )
    found, more = _fetch_after(rows, [_reverse(name) for name in order], values, size)
    if not more:  # at the beginning of the list, fill the page
        return _first_page(rows, order, size)
    found.reverse()
    return Page(
        rows=found,
        next=key_after(found[-1], order),
        previous=_page_key(_BEFORE, found[0], order),
    )


def key_after(row: Model, order: Sequence[str]) -> str:
    """Return the key of the page that begins after this row."""
    return _page_key(_AFTER, row, order)


def _search_page(
    rows: QuerySet[Any], search: Search, order: Sequence[str], size: int, key: str | None
) -> Page:
    """Read ``search.base`` in growing portions until the page is full or the search has to stop."""
    place = None
    if key is not None:
        way, place = _parse_key(key, rows.model, order)
        if way != _AFTER:
            raise InvalidPageKey("A search has no pages backwards. Begin with the first page.")
    found: list[Any] = []
    read, portion, deadline = 0, _FIRST_PORTION, time.monotonic() + _LONGEST
    while True:
        began = time.monotonic()
        portion = min(portion, search.most - read)
        last = _row_at(_rows_after(search.base, order, place), order, portion - 1)
        portion_rows = _rows_after(rows, order, place)
        if last is not None:
            portion_rows = _rows_up_to(portion_rows, order, last)
        found += _find_keys(portion_rows, order, size + 1 - len(found), search)
        if len(found) > size:
            chosen = _fetch_rows(rows, found[:size], order)
            return Page(rows=chosen, next=key_after(chosen[-1], order))
        if last is None:
            return Page(rows=_fetch_rows(rows, found, order))
        read += portion
        portion *= 2
        place = _values_of(last, order)
        # The next portion takes about twice as long as this one.
        now = time.monotonic()
        if read >= search.most or now + 2 * (now - began) > deadline:
            next_key = key_after(last, order)
            return Page(rows=_fetch_rows(rows, found, order), next=next_key, reached=last)


def _rows_after(
    rows: QuerySet[Any], order: Sequence[str], place: Sequence[Any] | None
) -> QuerySet[Any]:
    if place is None:
        return rows
    [condition] = _conditions_after(order, place)
    return rows.filter(**condition)


def _rows_up_to(rows: QuerySet[Any], order: Sequence[str], last: Model) -> QuerySet[Any]:
    [name], [value] = order, _values_of(last, order)
    return rows.filter(**{f"{name.removeprefix('-')}__{'gte' if name[0] == '-' else 'lte'}": value})


def _row_at(rows: QuerySet[Any], order: Sequence[str], number: int) -> Any:
    """Return the row with this number, counted from 0; None if there are fewer rows."""
    keys = rows.order_by(*order).values("pk")[number : number + 1]
    return rows.model._base_manager.using(rows.db).filter(pk__in=keys).first()


def _find_keys(rows: QuerySet[Any], order: Sequence[str], number: int, search: Search) -> list[Any]:
    """Return the primary keys of the first ``number`` rows that the search accepts."""
    ordered = rows.order_by(*order)
    if search.accepts is None:
        return list(ordered.values_list("pk", flat=True)[:number])
    found = []
    for key, value in ordered.values_list("pk", "searched").iterator(chunk_size=100):
        if search.accepts(value):
            found.append(key)
            if len(found) == number:
                break
    return found


def _first_page(rows: QuerySet[Any], order: Sequence[str], size: int) -> Page:
    found = _fetch_first(rows, order, size + 1)
    more = len(found) > size
    return Page(rows=found[:size], next=key_after(found[size - 1], order) if more else None)


def _reverse(name: str) -> str:
    return name[1:] if name.startswith("-") else f"-{name}"


def _fetch_after(
    rows: QuerySet[Any], order: Sequence[str], values: Sequence[Any], size: int
) -> tuple[list[Any], bool]:
    """Return up to ``size`` rows that come after these values, and True if there are more rows."""
    found: list[Any] = []
    for conditions in _conditions_after(order, values):
        found += _fetch_first(rows.filter(**conditions), order, size + 1 - len(found))
        if len(found) > size:
            break
    return found[:size], len(found) > size


def _fetch_first(rows: QuerySet[Any], order: Sequence[str], number: int) -> list[Any]:
    """Return the first ``number`` rows of a QuerySet, or all if there are fewer.

    A subquery finds the primary keys of these rows, and only these rows are read. An index with all
    filtered fields is then sufficient for the subquery, and the database prefers that index.
    Otherwise, the database might read the whole table by primary key, because it expects to find
    enough matching rows soon.
    """
    return _fetch_rows(rows, rows.order_by(*order).values("pk")[:number], order)


def _fetch_rows(rows: QuerySet[Any], keys: Any, order: Sequence[str]) -> list[Any]:
    """Return the rows with these primary keys, in order, with the relations that ``rows`` has."""
    chosen = rows.model._base_manager.using(rows.db).filter(pk__in=keys)
    chosen.query.select_related = rows.query.select_related
    return list(chosen.order_by(*order))


def _conditions_after(order: Sequence[str], values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the conditions that together select all rows that come after these values.

    Each condition selects one range of an index on ``order``, in the order of that index, so the
    database reads only the rows that it returns. With all conditions joined by OR, the database
    would start at the first row that has the same first value.
    """
    for last in reversed(range(len(order))):
        same = zip(order[:last], values[:last], strict=True)
        field, way = order[last].removeprefix("-"), "lt" if order[last].startswith("-") else "gt"
        yield {name.removeprefix("-"): value for name, value in same} | {
            f"{field}__{way}": values[last]
        }


def _page_key(way: str, row: Model, order: Sequence[str]) -> str:
    values = _values_of(row, order)
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
    text = json.dumps([way, *plain], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _values_of(row: Model, order: Sequence[str]) -> list[Any]:
    return [getattr(row, name.removeprefix("-")) for name in order]


def _parse_key(key: str, model: type[Model], order: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the direction and the values that a page key contains. Raises InvalidPageKey."""
    try:
        padded = key + "=" * (-len(key) % 4)
        text = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        way, *values = json.loads(text)
        if way in (_AFTER, _BEFORE) and len(values) == len(order):
            fields = [model._meta.get_field(name.removeprefix("-")) for name in order]
            return way, [_parse_value(f, v) for f, v in zip(fields, values, strict=True)]
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        pass
    raise InvalidPageKey(f"{key!r} is not a page key of this list. Begin with the first page.")


def _parse_value(field: Any, value: Any) -> Any:
    if isinstance(field, DateTimeField):
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError(f"{value} has no offset")
        return time.astimezone(UTC)
    if isinstance(field, CharField):
        check_text(field.name, value)
        return value
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise ValueError(f"{value!r} is not a key")
    return value
