"""Instances: the list of them, and all about one."""

from .. import documents, overview, paging, queue, waiting
from ..conf import settings
from ..models import Instance, LogRecord, Task
from ..registry import registry
from ..states import Event, Reason, State
from ..timeline import ran, timeline
from ..web import permissions, raw
from ..web.actions import allowed
from ..web.filters import InstanceFilter, selected
from .base import Page
from .bodies import shown_inputs, shown_response

PAGE_SIZE = 50
# Records of the log on an Instance's own page, and on a page of its log.
LOG_SHOWN = 50
LOG_PAGE_SIZE = 200
# After these the message of the last transition says what was wrong with the last attempt.
_ENDED_BADLY = (Event.FAIL, Event.RETRY, Event.EXPIRE)
NEWEST_FIRST = ("-id",)


class InstancesPage(Page):
    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/instances.html"
    parameters = (*InstanceFilter.base_filters, "page")

    def get(self, request):
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        filters = selected(InstanceFilter, request.GET, rows, others=("page",))
        key = request.GET.get("page")
        page = paging.page(filters.qs, NEWEST_FIRST, size=PAGE_SIZE, key=key)
        _add_due_times(page.rows)
        return self.show(
            now=overview.now(),
            form=filters.form,
            is_filtered=any(filters.form.cleaned_data.values()),
            page=page,
            is_first=key is None,
            query=_query_without_page(request),
        )


def _add_due_times(instances):
    """Give each that waits its due time, as ``due``."""
    waiting = Task.objects.using(settings.DATABASE).waiting()
    tasks = waiting.in_bulk([row.pk for row in instances if row.state == State.ACCEPTED])
    for row in instances:
        row.due = tasks[row.pk].due_at if row.pk in tasks else None


def _query_without_page(request):
    """The query string of the filters that are set, as links to other pages begin with it."""
    query = request.GET.copy()
    query.pop("page", None)
    for name in [name for name in query if not query[name]]:
        del query[name]
    return f"{query.urlencode()}&" if query else ""


class InstancePage(Page):
    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/instance.html"

    def get(self, request, uuid):
        instance = queue.get(uuid)
        user = request.user
        task = queue.task(instance)
        context = {}
        if user.has_perm(permissions.VIEW_RESPONSE):
            context["response"] = shown_response(queue.response(instance))
        if user.has_perm(permissions.VIEW_LOG):
            context |= _log(instance)
            context["ran"] = ran(context["timeline"], overview.now())
        if user.has_perm(permissions.VIEW_INPUTS):
            context["inputs"] = shown_inputs(queue.inputs(instance))
        now = overview.now()
        held = task is not None and task.daemon is not None
        holder = overview.condition(task.daemon, now) if held else None
        return self.show(
            now=now,
            instance=instance,
            task=task,
            asked=documents.asked(instance.state, task.request) if task is not None else "",
            waits_for=waiting.why(instance, task),
            actions=[
                a for a in allowed(instance, task) if holder != overview.LOST or not a.asks_holder
            ],
            holder=holder,
            may_enqueue_again=self._may_enqueue_again(instance),
            may_delete=self.may(permissions.DELETE),
            **context,
        )

    def _may_enqueue_again(self, instance):
        needed = (permissions.VIEW_TYPE, permissions.VIEW_INPUTS, permissions.OPERATE)
        return instance.type.identifier in registry and self.may(*needed)


def _log(instance):
    """What the log tells: its latest records, the time line, and why it failed if it did."""
    latest = list(instance.log.reverse()[: LOG_SHOWN + 1])
    last = next((record for record in latest if record.event), None)
    told = last.message if last is not None and last.event in _ENDED_BADLY else ""
    if instance.reason == Reason.STALE:
        # What it was that happened too often.
        lost = next((record.message for record in latest if record.event == Event.EXPIRE), "")
        told = f"{lost}\n{told}".strip()
    return {
        "log": latest[:LOG_SHOWN][::-1],
        "is_log_cut": len(latest) > LOG_SHOWN,
        "failure": told,
        "timeline": timeline(instance),
    }


class LogPage(Page):
    permissions = (permissions.VIEW_INSTANCE, permissions.VIEW_LOG)
    template_name = "atp/log.html"
    parameters = ("page",)

    def get(self, request, uuid):
        instance = queue.get(uuid)
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance)
        key = request.GET.get("page")
        page = paging.page(records, ("id",), size=LOG_PAGE_SIZE, key=key)
        return self.show(instance=instance, page=page, now=overview.now())


class ResponseBody(Page):
    """The response as it is; see :mod:`atp.web.raw`."""

    permissions = (permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE)

    def get(self, request, uuid):
        instance = queue.get(uuid)
        return raw.body_of(queue.response(instance), f"response-{instance.uuid}")


class PublishedFile(Page):
    """A file that the handler published, as it is."""

    permissions = (permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE)

    def get(self, request, uuid, number):
        return raw.file_of(queue.response(queue.get(uuid)), number)
