"""The pages of the error groups: a list, and a single group with its dead letters."""

from datetime import datetime

from django.urls import reverse
from django.utils.functional import cached_property

from .. import queue
from ..conf import settings
from ..exceptions import ATPError, InvalidOption
from ..models import ErrorGroup, Instance, Type
from ..operations import matching
from ..operations.table import ERROR, VERBS
from ..pages.base import Page
from ..pages.instances import query_without_page
from ..pages.operations import VerbPage
from ..reports import overview, paging
from ..reports.documents import headlines
from ..states import DEAD_LETTER, Reason
from ..web import permissions
from ..web.filters import ErrorFilter, selected
from . import operations as groups

PAGE_SIZE = 25
# The verbs whose page shows a plan before they are performed.
_PLANNED = {"redrive": queue.redrive_matching, "delete": queue.delete_matching}
# The parameters that select among the dead letters of a group.
_FILTERS = ("collection", "ended_before")
# The reasons of FAILED Instances that have no error group: no attempt of these has failed.
WITHOUT_GROUP = tuple(reason for reason in Reason if reason not in DEAD_LETTER)


class FailuresPage(Page):
    permissions = (permissions.VIEW_ERROR,)
    template_name = "atp/failures.html"
    parameters = (*ErrorFilter.base_filters, "page")

    def get(self, request):
        """Show the groups that have dead letters left, unless ``left`` selects others."""
        given = request.GET.copy()
        given.setdefault("left", "true")
        filters = selected(
            ErrorFilter, given, self.narrowed(queue.error_groups()), others=("page",)
        )
        key = request.GET.get("page")
        page = paging.page(filters.qs, ("-last_seen", "-id"), size=PAGE_SIZE, key=key)
        lines = permissions.may_see_errors(request.user, *page.rows)
        return self.show(
            now=overview.now(),
            form=filters.form,
            is_filtered=any(filters.form.cleaned_data.values()),
            without_group=WITHOUT_GROUP if self.may(permissions.VIEW_INSTANCE) else (),
            page=page,
            groups=groups.groups(page.rows, lines=lines),
            is_first=key is None,
            query=query_without_page(request, keep=("left",)),
        )


class FailurePage(Page):
    """The page of an error group, with its dead letters, PAGE_SIZE at a time."""

    permissions = (permissions.VIEW_ERROR,)
    template_name = "atp/failure.html"
    parameters = ("page",)

    def get(self, request, group):
        row = self.look_up(ErrorGroup, group, lambda: queue.get_error_group(group))
        key = request.GET.get("page")
        [found] = groups.groups([row], lines=permissions.may_see_errors(request.user, row))
        own = Instance.objects.using(settings.DATABASE).filter(error=row.pk)
        own = self.narrowed(own, permissions.VIEW_INSTANCE)
        page = paging.page(own.select_related("type"), ("-id",), size=PAGE_SIZE, key=key)
        may_see = permissions.may_see_errors(request.user, row)
        lines = headlines(page.rows) if may_see else {}
        for instance in page.rows:
            instance.line = lines.get(instance.pk, "")
        return self.show(
            now=overview.now(),
            group=found,
            row=row,
            type=Type.objects.using(settings.DATABASE).filter(identifier=row.type).first(),
            verbs=self._verbs(row),
            page=page if request.user.has_perm(permissions.VIEW_INSTANCE) else None,
            is_first=key is None,
            query="",
        )

    def _verbs(self, row):
        verbs = VERBS[ERROR].values()
        return [verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)]


class ErrorVerbPage(VerbPage):
    kind = ERROR
    model = ErrorGroup
    key = "group"
    view_permission = permissions.VIEW_ERROR

    def find(self):
        return queue.get_error_group(self.kwargs["group"])

    def page_to_return_to(self):
        return reverse("atp:failure", kwargs={"group": self.kwargs["group"]})

    def name_of(self, subject):
        return f"{subject.type} {subject.name}"

    def shown(self, subject):
        """Return until when a dead letter is in the plan on the page; "" without a plan."""
        return "" if self._planned is None else self._now.isoformat()

    def given(self, form):
        """Return the arguments; unless told otherwise, what failed after the page is left out."""
        found, shown = form.given(), self.request.POST.get("shown")
        if self._planned is not None and shown and "ended_before" not in found:
            found["ended_before"] = _moment(shown)
        return found

    def show(self, *, subject=None, form=None, **context):
        if subject is not None and self._planned is not None:
            context["plan"] = self._plan(subject, form)
        return super().show(subject=subject, form=form, **context)

    def _plan(self, subject, form):
        """Return the plan in words, by the filters that were typed if these are possible."""
        typed = form.cleaned_data if form.is_bound else {}
        names = [name for name in _FILTERS if form.is_bound and name in form.changed_data]
        chosen = {name: typed[name] for name in names if typed.get(name) is not None}
        until = {"ended_before": self._now}
        try:
            found = self._planned(error=subject, dry_run=True, **until | chosen)
        except ATPError:
            found = self._planned(error=subject, dry_run=True, **until)
        return matching.describe_plan(found)

    @property
    def _planned(self):
        return _PLANNED.get(self.kwargs["name"])

    @cached_property
    def _now(self):
        return overview.now()


def _moment(text):
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidOption(f"shown={text!r}: must be a time with its zone.")
    return found
