"""What the log says of gates and limits: a selection; :mod:`.queue` has it too."""

from .conf import settings
from .controls import place_of
from .models import LogRecord


def place_log(type=None, collection=None, *, about="", limit=100):
    """Return the last records about a place, the newest first, each with its ``place``.

    Those of a Type are with its lanes; without a Type it is everything. ``about`` is
    "gate" or "limits", for those alone; then without a Type it is of all places.
    Raises UnknownType, InvalidGate.
    """
    place = place_of(type, collection)
    records = LogRecord.objects.using(settings.DATABASE)
    if collection is not None:
        records = records.about(place.subject[:255])
    elif type is not None:
        records = records.about_type(place.type.identifier)
    elif about:
        records = records.about_any()
    else:
        records = records.about(place.subject)
    if about:
        records = records.filter(message__startswith=about)
    found = list(records.reverse()[:limit])
    for record in found:
        record.place = _place(record.subject)
    return found


def _place(subject):
    """The identifier of the Type and the collection that a subject names."""
    kind, _, name = subject.partition(":")
    if kind not in ("type", "lane"):
        return None, None
    identifier, _, collection = name.partition("/")
    return identifier, collection if kind == "lane" else None
