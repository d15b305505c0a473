"""Selections: the Instances that a verb is for, described by a filter."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ...conf import settings
from ...exceptions import InvalidOption, InvalidSelection, UnknownErrorGroup, UnknownType
from ...models import ErrorGroup, Instance, Task, Type
from ...rows.error import DIGITS
from ...states import DEAD_LETTER, LIVE, Reason, State
from ...store import get_store
from ...words.hints import did_you_mean
from ...words.options import check_text, instant
from ..registry import is_internal

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ..types import TypeLike

REDRIVE, CANCEL, DELETE = "redrive", "cancel", "delete"
# The minimum number of digits that name an error group.
FEWEST_DIGITS = 4


def error_group(named: ErrorGroup | str) -> ErrorGroup:
    """Return the error group whose name begins with these hexadecimal digits, four at least.

    Raises UnknownErrorGroup, also if more than one begins with them.
    """
    rows = ErrorGroup.objects.using(settings.DATABASE)
    digits = f"{named.pk:0{DIGITS}x}" if isinstance(named, ErrorGroup) else str(named).lower()
    is_name = FEWEST_DIGITS <= len(digits) <= DIGITS and not set(digits) - set("0123456789abcdef")
    if not is_name or digits[0] > "7":
        raise UnknownErrorGroup(
            f"There is no error group {str(named)!r}: its name is 4 to 16 hexadecimal digits."
        )
    missing = DIGITS - len(digits)
    first = int(digits, 16) << 4 * missing
    last = first + (1 << 4 * missing) - 1
    found = list(rows.filter(pk__gte=first, pk__lte=last).order_by("-last_seen")[:2])
    if not found:
        raise UnknownErrorGroup(f"There is no error group {digits}.")
    if len(found) > 1:
        raise UnknownErrorGroup(
            f"{digits} is the beginning of more than one error group, of {found[0].digits} and "
            f"{found[1].digits} for example: give more digits."
        )
    return found[0]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A filter of Instances for a verb, made by :func:`selection`.

    It selects Instances that ended up to ``until``; for "cancel", live ones that were enqueued up
    to then. ``type`` is a pattern of identifiers, as "dem.*"; ``error`` the key of an error group;
    ``until`` a time in ISO 8601.
    """

    verb: str
    until: str
    type: str | None = None
    error: int | None = None
    collection: str | None = None
    reason: str | None = None

    def rows(self) -> QuerySet[Instance]:
        """Return the Instances that match now, without those redriven or removed meanwhile."""
        rows = Instance.objects.using(settings.DATABASE)
        until = datetime.fromisoformat(self.until)
        if self.verb == CANCEL:
            # No index leads to live Instances among all, but each has a Task.
            tasks = Task.objects.using(settings.DATABASE).filter(type__in=types_of(self.type))
            rows = rows.filter(pk__in=tasks.values("pk"), state__in=LIVE, created__lte=until)
        else:
            reasons = [self.reason] if self.reason else sorted(DEAD_LETTER)
            rows = rows.filter(type__in=types_of(self.type), reason__in=reasons, reason__gt="")
            rows = rows.filter(state=State.FAILED, finished__isnull=False, finished__lte=until)
        if self.error is not None:
            rows = rows.filter(error=self.error)
        if self.collection is not None:
            rows = rows.filter(collection=self.collection)
        return rows

    @property
    def filter(self) -> dict[str, Any]:
        """The fields of the selection, without ``until``."""
        return {name: value for name, value in asdict(self).items() if name != "until"}

    @property
    def key(self) -> str:
        """A hash of the filter: equal for two selections with the same filter."""
        text = json.dumps(self.filter, sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def text(self) -> str:
        """The selection in a few words."""
        error = None if self.error is None else f"{self.error:0{DIGITS}x}"[:8]
        facts = {"type": self.type, "error": error}
        facts |= {"collection": self.collection, "reason": self.reason}
        told = [f"{name} {value!r}" for name, value in facts.items() if value is not None]
        return ", ".join(told) or "all"


def types_of(pattern: str | None) -> list[int]:
    """Return the keys of the matching Types; ATP's own Types match only by their full name."""
    known = Type.objects.using(settings.DATABASE).values_list("identifier", "pk")
    return [key for name, key in known if matches(pattern, name)]


def matches(pattern: str | None, identifier: str) -> bool:
    """Whether a pattern, or None for any, matches a Type."""
    if is_internal(identifier):
        return pattern == identifier
    return pattern is None or fnmatch.fnmatchcase(identifier, pattern)


def selection(
    verb: str,
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    until: datetime | None = None,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
) -> Selection:
    """Check a filter and return it as a :class:`Selection`.

    Raises InvalidSelection, UnknownErrorGroup, or UnknownType if no Type matches.
    """
    given = {"type": type, "error": error, "collection": collection, "reason": reason}
    if all is not True and all is not False:
        raise InvalidSelection(f"all={all!r}: must be True or False.")
    is_empty = {value is None for value in given.values()} == {True}
    if not all and (until is None or verb == CANCEL) and is_empty:
        raise InvalidSelection(
            f"An empty filter would {verb} everything: give one, or all=True.",
            errors=[("all", "An empty filter is for everything: then it must be true.")],
        )
    group = None if error is None else error_group(error)
    return Selection(
        verb=verb,
        until=_moment(until, verb).isoformat(),
        type=None if type is None else checked_pattern(str(type)),
        error=None if group is None else group.pk,
        collection=None if collection is None else _text("collection", collection),
        reason=None if reason is None else _reason(reason),
    )


def _moment(until: datetime | None, verb: str) -> datetime:
    now = get_store().now()
    if until is None:
        return now
    name = "created_before" if verb == CANCEL else "ended_before"
    try:
        time = instant(name, until) or now
    except InvalidOption as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    if time > now:
        why = f"{time.isoformat(' ', 'seconds')} is in the future: it is a time that has passed."
        raise InvalidSelection(f"{name}: {why}", errors=[(name, why)])
    return time


def checked_pattern(pattern: str) -> str:
    """Return a pattern of Types, or an identifier. Raises UnknownType if it matches none."""
    _text("type", pattern)
    known = list(Type.objects.using(settings.DATABASE).values_list("identifier", flat=True))
    if not any(matches(pattern, name) for name in known):
        hint = did_you_mean(pattern, known)
        raise UnknownType(f"No Type {pattern!r} is registered.{hint}")
    return pattern


def _text(name: str, value: object) -> str:
    try:
        check_text(name, value)
    except ValueError as error:
        raise InvalidSelection(str(error), errors=[(name, str(error))]) from None
    return str(value)


def _reason(reason: str) -> str:
    if reason in Reason.values:
        return str(Reason(reason).value)
    hint = did_you_mean(str(reason), Reason.values)
    why = f"must be one of {', '.join(Reason.values)}, not {reason!r}.{hint}"
    raise InvalidSelection(f"reason: {why}", errors=[("reason", why)])
