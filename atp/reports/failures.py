"""The reasons why Instances FAILED, in one line each."""

from collections.abc import Iterable

from django.db.models import OuterRef, Subquery

from ..conf import settings
from ..models import Instance, LogRecord
from ..states import Event, State
from ..words import wording

MAX_HEADLINE = 200


def headline(message: str) -> str:
    """Return the line of a failure's message that names the error, shortened."""
    return wording.shorten(wording.headline(message).strip(), MAX_HEADLINE)


def headlines(instances: Iterable[Instance]) -> dict[int, str]:
    """Return the headline of each FAILED Instance among these, by primary key."""
    keys = [instance.pk for instance in instances if instance.state == State.FAILED]
    if not keys:
        return {}
    records = LogRecord.objects.using(settings.DATABASE)
    # Hooks and scans leave records of the FAILED Instance behind that of its failure.
    last = records.filter(instance=OuterRef("pk"), kind=Event.FAIL).order_by("-pk")
    rows = Instance.objects.using(settings.DATABASE).filter(pk__in=keys)
    found = rows.values_list("pk", Subquery(last.values("message")[:1]))
    return {key: headline(message or "") for key, message in found}
