"""The verbs of gates, limits and weights; :mod:`.queue` has them too.

A place is a Type, by its identifier, and a collection: a lane. Without the collection
it is the whole Type, with neither everything.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from .conf import did_you_mean, settings
from .exceptions import InvalidGate, InvalidLimit, InvalidOption, UnknownType
from .finding import check_by
from .models import Gate, Limit, Type
from .options import check_text
from .rates import check_limits, default_burst, per_second
from .registry import is_identifier, registry
from .store import get_store
from .store.values import Place

# Stands for "leave it as it is".
KEEP = object()


def hold(type=None, collection=None, *, reason="", until=None, expected=None, by=""):
    """Let what is there wait: nothing of it is started. Returns the Gate.

    ``until`` is when it opens by itself, a datetime or a timedelta from now. ``was`` of the
    Gate is the one that it replaces, if that was shut. ``expected`` is how the gate has to
    be for that: "open", "hold" or "drop", or the datetime since when it has been as it is.
    Raises UnknownType, InvalidGate, or GateChanged if somebody else was quicker.
    """
    return _shut("hold", type, collection, reason, until, expected, by)


def drop(type=None, collection=None, *, reason="", until=None, expected=None, by=""):
    """Let what waits there, and what is enqueued from now on, FAIL as DROPPED.

    As :func:`hold`; the daemons do it, in portions.
    """
    return _shut("drop", type, collection, reason, until, expected, by)


def open_gate(type=None, collection=None, *, reason="", expected=None, by=""):
    """Open a gate; returns the Gate that it was, None if it was open: then nothing is written.

    Those of other places stay as they are. ``expected`` and what is raised: as :func:`hold`.
    """
    check_by(by)
    place = place_of(type, collection)
    _check_reason(reason)
    expected = _expected(expected)
    return get_store().open(place, who=by, reason=reason, expected=expected)


def limit(type, collection=None, *, max_running=KEEP, rate=KEEP, burst=KEEP, weight=KEEP, by=""):
    """Limit a Type or a lane over all daemons; returns the Limit as it is then.

    At most ``max_running`` are claimed at any time. ``rate``, as "100/m", is how many
    are started in a time, ``burst`` of them at once after a pause. ``weight`` is the
    share of a Type beside others. What is not given stays, but for the burst, which is
    the rate's own if only that is given; None is none. Raises UnknownType or InvalidLimit.
    """
    check_by(by)
    place = place_of(type, collection, InvalidLimit)
    if place.type is None:
        raise InvalidLimit("Limits are of a Type, or of a lane of it: say which.")
    if weight is not KEEP and place.collection is not None:
        raise InvalidLimit("A weight is of a Type: its lanes share evenly.")
    changes = _changes(place, max_running, rate, burst, weight)
    return get_store().limit(place, who=by, **changes)


def unlimit(type, collection=None, *, by=""):
    """Let a Type or a lane be limited as the code says, from now on; returns :class:`Left`.

    The code is what this process declares, and of lanes it says nothing. If it does not
    declare the Type, what is in force holds until that is registered next.
    """
    check_by(by)
    place = place_of(type, collection, InvalidLimit)
    if place.type is None:
        raise InvalidLimit("Limits are of a Type, or of a lane of it: say which.")
    declared = {} if collection is not None else None
    if declared is None and str(type) in registry:
        declared = declared_limits(registry.get(str(type)))
    was_set = get_store().unlimit(place, declared, who=by)
    rows = Limit.objects.using(settings.DATABASE).filter(subject=place.subject)
    return Left(was_set=was_set, is_declared=declared is not None, limit=rows.first())


@dataclass(frozen=True, kw_only=True)
class Left:
    """Limits that were left to the code: whether an operator had set any, and what there is now.

    ``is_declared`` says that it is what the code says; otherwise nobody here knows that.
    """

    was_set: bool
    is_declared: bool
    limit: Limit | None


def gates(*, now=None):
    """The Gates that are shut, of all places."""
    now = get_store().now() if now is None else now
    rows = Gate.objects.using(settings.DATABASE).select_related("type")
    return [gate for gate in rows if gate.until is None or gate.until > now]


def limits(type=None):
    """The Limits of all places, or of a Type and its lanes."""
    rows = Limit.objects.using(settings.DATABASE).select_related("type")
    return list(rows if type is None else rows.filter(type=_type(type)))


def declared_limits(task_type):
    """What a declared Type says of limits, as columns; empty if it says nothing."""
    given = {
        name: value
        for name in ("max_running", "rate", "burst", "weight")
        if (value := getattr(task_type, name)) is not None
    }
    if "rate" in given:
        given["per_second"] = per_second(given["rate"])
        given.setdefault("burst", default_burst(given["rate"]))
    if given.get("weight") is not None:
        given["weight"] = float(given["weight"])
    return given


def place_of(type=None, collection=None, error=InvalidGate):
    """Return the :class:`Place`. Raises UnknownType, or ``error`` for a collection."""
    if collection is not None:
        if type is None:
            raise error("A lane is of a Type: say which.")
        try:
            check_text("collection", collection)
        except InvalidOption as wrong:
            raise error(str(wrong)) from None
    return Place(None if type is None else _type(type), collection)


def _type(identifier):
    identifier = str(identifier)
    types = Type.objects.using(settings.DATABASE)
    found = types.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if found is None:
        known = types.values_list("identifier", flat=True)
        raise UnknownType(f"No Type {identifier!r} is registered.{did_you_mean(identifier, known)}")
    return found


def _shut(mode, type, collection, reason, until, expected, by):
    check_by(by)
    place = place_of(type, collection)
    _check_reason(reason)
    store = get_store()
    until, expected = _until(until, store.now), _expected(expected)
    return store.shut(place, mode, who=by, reason=reason, until=until, expected=expected)


def _expected(expected):
    if expected in (None, "open", "hold", "drop"):
        return expected
    if isinstance(expected, datetime) and timezone.is_aware(expected):
        return expected
    raise InvalidGate(
        f"expected={expected!r}: must be 'open', 'hold' or 'drop', or since when the gate has been "
        "as it is, with an offset."
    )


def _check_reason(reason):
    try:
        check_text("reason", reason)
    except InvalidOption as wrong:
        raise InvalidGate(str(wrong)) from None


def _until(until, now):
    """Return a point in time in UTC that lies ahead. Raises InvalidGate."""
    if until is None:
        return None
    try:
        if isinstance(until, timedelta):
            until = now() + until
        if not isinstance(until, datetime):
            raise InvalidGate(f"until={until!r}: must be a datetime, or a timedelta from now.")
        if timezone.is_naive(until):
            until = timezone.make_aware(until)
        until = until.astimezone(UTC)
    except OverflowError:
        raise InvalidGate(f"until={until!r} is beyond what the calendar holds.") from None
    if until <= now():
        raise InvalidGate(f"until={until} has passed.")
    return until


def _changes(place, max_running, rate, burst, weight):
    """Return the columns to be set. Raises InvalidLimit."""
    given = {"max_running": max_running, "rate": rate, "burst": burst, "weight": weight}
    given = {name: value for name, value in given.items() if value is not KEEP}
    if not given:
        raise InvalidLimit("Say what is to be limited: max_running, rate, burst or weight.")
    if "burst" in given and "rate" not in given:
        rows = Limit.objects.using(settings.DATABASE).filter(subject=place.subject)
        given["rate"] = rows.values_list("rate", flat=True).first() or None
    check_limits(**given)
    if "rate" in given:
        rate = given["rate"]
        given["per_second"] = None if rate is None else per_second(rate)
        if given.get("burst") is None:
            given["burst"] = 1 if rate is None else default_burst(rate)
        given["rate"] = rate or ""
    if given.get("weight", KEEP) is None:
        given["weight"] = 1.0
    return given
