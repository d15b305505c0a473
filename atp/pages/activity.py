"""The page of activity: who did what to Types, lanes, daemons, downstreams and schedules, and when.

The charts mark the same records.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.http import urlencode

from ..conf import settings
from ..models import DEPARTURES, Kind, LogRecord
from ..querysets import LogQuerySet
from ..reports import overview, paging
from ..web import permissions
from ..web.filters import ActivityFilter, bind_filters
from .base import Page, query_without_page
from .charts import Mark

PAGE_SIZE = 50
# The kinds of records that charts mark, and the most marks of a chart: the newest.
MARKED = (
    *(Kind.GATE, Kind.LIMITS, Kind.REGISTERED, Kind.UNREGISTERED, Kind.PARAMETERS),
    *(Kind.DOWNSTREAM, Kind.STARTED, *DEPARTURES, Kind.ORDER),
)
MOST_MARKS = 200
# The page about a subject, by its kind: the name of the URL and of its parameter.
_PAGES = {
    "type": ("type", "identifier"),
    "tailer": ("tailer", "tailer"),
    "schedule": ("schedule", "identifier"),
    "downstream": ("downstream", "downstream"),
    "daemon": ("daemon", "uuid"),
    "instance": ("instance", "uuid"),
    "gate": ("type-gate", "identifier"),
    "limit": ("type-limit", "identifier"),
}


def address_of(kind: str, name: str, collection: str | None = None) -> str:
    """Return the address of the page about a subject of the queue, or "" if it has no page.

    ``kind`` is a key such as "type" or "daemon", and ``name`` the identifier or uuid. A gate or a
    limit is named by its Type, or by "" if it covers everything, and can have a ``collection``.
    """
    if kind == "errors":
        return f"{reverse('atp:failures')}?{urlencode({'type': name})}"
    if kind == "gate" and not name:
        return reverse("atp:gate")
    if kind not in _PAGES or not name:
        return ""
    view, key = _PAGES[kind]
    address = reverse(f"atp:{view}", kwargs={key: name})
    if collection is None or kind not in ("gate", "limit"):
        return address
    return f"{address}?{urlencode({'collection': collection})}"


def address_of_operation(kind: str, name: str, operation: str) -> str:
    """Return the address at which a page performs an operation on a subject."""
    view, key = _PAGES[kind]
    return reverse(f"atp:{view}-verb", kwargs={key: name, "name": operation})


@dataclass(frozen=True, kw_only=True)
class Act:
    """A record of activity: its ``subject`` in words, and the ``address`` of the subject's page."""

    record: LogRecord
    subject: str
    address: str

    @property
    def kind(self) -> str:
        """What was done, in words."""
        return Kind(self.record.kind).label


def acts(records: Iterable[LogRecord]) -> Iterator[Act]:
    """Yield an Act for each record about a subject of the queue."""
    for record in records:
        noun, _, name = record.subject.partition(":")
        if noun == "lane":
            type, _, collection = name.partition("/")
            words, address = f"{type}, collection “{collection}”", address_of("type", type)
        elif noun == "type":
            words, address = name, address_of("type", name)
        elif noun == "daemon":
            words, address = f"daemon {name}", address_of("daemon", _uuid_in(record.detail))
        elif noun == "queue":
            words, address = "everything", address_of("gate", "")
        else:
            words, address = f"{noun} {name}", address_of(noun, name)
        yield Act(record=record, subject=words, address=address)


def _uuid_in(detail: str) -> str:
    """Return the uuid that a record about a daemon has as its detail, or "" if it has none."""
    try:
        return str(UUID(detail.partition(" ")[0]))
    except ValueError:
        return ""


def marks_since(since: datetime, *, type: str | None = None) -> list[Mark]:
    """Return a mark for a chart for each of the newest records since a time, in one query.

    With the identifier of a ``type``, only records about this Type, its lanes, everything and
    daemons are marked. If there are more than MOST_MARKS, the first mark says so.
    """
    records = _records().filter(kind__in=MARKED, time__gte=since)
    if type is not None:
        own = Q(subject__in=(f"type:{type}", "queue")) | Q(subject__startswith=f"lane:{type}/")
        records = records.filter(own | Q(subject__startswith="daemon:"))
    newest = list(records.order_by("-pk")[: MOST_MARKS + 1])
    activity = reverse("atp:activity")
    marks = [
        Mark(
            time=act.record.time,
            text=_mark_text(act),
            url=f"{activity}?{urlencode({'subject': act.record.subject})}",
        )
        for act in acts(newest[::-1])
    ]
    if len(newest) > MOST_MARKS:
        marks[0] = replace(marks[0], text="What happened before is only in Activity", url=activity)
    return marks


def _mark_text(act: Act) -> str:
    who = f" ({act.record.who})" if act.record.who else ""
    return f"{act.subject}: {act.record.message}{who}"


def _records() -> LogQuerySet[LogRecord]:
    """Select the records about subjects of the queue; an index has them in their order."""
    return LogRecord.objects.using(settings.DATABASE).about_any()


class ActivityPage(Page):
    """The page that lists the records about subjects of the queue, the newest first."""

    permissions = (permissions.VIEW_LOG,)
    template_name = "atp/activity.html"
    parameters = (*ActivityFilter.base_filters, "page")

    def get(self, request: HttpRequest) -> HttpResponseBase:
        self.check_unrestricted()
        rows = _records()
        if not permissions.holds(request.user, permissions.VIEW_DAEMON):
            rows = rows.exclude(subject__startswith="daemon:")
        filters = bind_filters(ActivityFilter, request.GET, rows, others=("page",))
        key = request.GET.get("page")
        page = paging.page(filters.qs, ("-id",), size=PAGE_SIZE, key=key)
        return self.show(
            now=overview.now(),
            form=filters.form,
            is_filtered=any(filters.form.cleaned_data.values()),
            page=page,
            acts=list(acts(page.rows)),
            is_first=key is None,
            query=query_without_page(request),
        )
