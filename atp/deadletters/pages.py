"""The page that lists the error groups, and the page of one group with its dead letters."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from .. import queue
from ..conf import settings
from ..exceptions import ATPError, InvalidOption
from ..models import ErrorGroup, Instance, Type
from ..operations import matching
from ..operations.table import ERROR, OPERATIONS
from ..pages.base import Page, query_without_page
from ..pages.operations import KindForm, OperationPage
from ..reports import overview, paging
from ..reports.documents import headlines
from ..web import permissions
from ..web.filters import ErrorFilter, bind_filters
from . import operations as groups

PAGE_SIZE = 25
# The operations whose page shows a plan before they are performed.
_PLANNED: dict[str, Callable[..., Any]] = {
    "redrive": queue.redrive_matching,
    "delete": queue.delete_matching,
}
# The parameters that select among the dead letters of a group.
_FILTERS = ("collection", "ended_before")


class FailuresPage(Page):
    """The page that lists the error groups, PAGE_SIZE at a time."""

    permissions = (permissions.VIEW_ERROR,)
    template_name = "atp/failures.html"
    parameters = (*ErrorFilter.base_filters, "page")

    def get(self, request: HttpRequest) -> HttpResponseBase:
        """Show the groups that still have dead letters, unless ``left`` selects others."""
        query = request.GET.copy()
        query.setdefault("left", "true")
        rows = self.narrow_rows(queue.error_groups())
        filters = bind_filters(ErrorFilter, query, rows, others=("page",))
        key, pattern = request.GET.get("page"), filters.values.get("type", "")
        page = paging.page(filters.qs, ("-last_seen", "-id"), size=PAGE_SIZE, key=key)
        lines = permissions.may_see_errors(request.user, *page.rows)
        return self.show(
            now=overview.now(),
            form=filters.form,
            is_filtered=any(filters.form.cleaned_data.values()),
            ungrouped=self._count_ungrouped(pattern),
            # The list of Instances takes no pattern.
            type="" if set(pattern) & set("*?[") else pattern,
            page=page,
            groups=groups.load_groups(page.rows, lines=lines),
            is_first=key is None,
            query=query_without_page(request, keep=("left",)),
        )

    def _count_ungrouped(self, pattern: str) -> list[groups.Ungrouped]:
        """Count the FAILED Instances without a group that the user may see, by reason.

        Only Types that match the pattern count, or all if it is "".
        """
        if not self.may(permissions.VIEW_INSTANCE):
            return []
        instances = Instance.objects.using(settings.DATABASE)
        visible: Any = self.narrow_rows(instances, permissions.VIEW_INSTANCE)
        return groups.count_ungrouped(visible, pattern)


class FailurePage(Page):
    """The page of an error group, with its dead letters, PAGE_SIZE at a time."""

    permissions = (permissions.VIEW_ERROR,)
    template_name = "atp/failure.html"
    parameters = ("page",)

    def get(self, request: HttpRequest, group: str) -> HttpResponseBase:
        row = self.look_up(ErrorGroup, group, lambda: queue.get_error_group(group))
        key = request.GET.get("page")
        [found] = groups.load_groups([row], lines=permissions.may_see_errors(request.user, row))
        failed = Instance.objects.using(settings.DATABASE).filter(error=row.pk)
        visible = self.narrow_rows(failed, permissions.VIEW_INSTANCE)
        page = paging.page(visible.select_related("type"), ("-id",), size=PAGE_SIZE, key=key)
        may_see = permissions.may_see_errors(request.user, row)
        lines = headlines(page.rows) if may_see else {}
        for instance in page.rows:
            instance.line = lines.get(instance.pk, "")
        return self.show(
            now=overview.now(),
            group=found,
            row=row,
            type=Type.objects.using(settings.DATABASE).filter(identifier=row.type).first(),
            verbs=self._allowed_operations(row),
            page=page if request.user.has_perm(permissions.VIEW_INSTANCE) else None,
            is_first=key is None,
            query="",
        )

    def _allowed_operations(self, row: ErrorGroup) -> list[Any]:
        verbs = OPERATIONS[ERROR].values()
        return [verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)]


class ErrorOperationPage(OperationPage):
    kind = ERROR
    model = ErrorGroup
    key = "group"
    view_permission = permissions.VIEW_ERROR

    def find(self) -> ErrorGroup:
        return queue.get_error_group(self.kwargs["group"])

    def page_to_return_to(self) -> str:
        return reverse("atp:failure", kwargs={"group": self.kwargs["group"]})

    def heading(self, subject: ErrorGroup) -> str:
        return f"{subject.type} {subject.name}"

    def shown_state(self, subject: ErrorGroup) -> str:
        """Return the time up to which the plan counts dead letters; "" if there is no plan."""
        return "" if self._planned is None else self.now.isoformat()

    def arguments(self, form: KindForm) -> dict[str, Any]:
        """Return the arguments for the operation.

        If the user has set no other time, they exclude Instances that failed after the page was
        shown.
        """
        values, shown = form.changed_values(), self.request.POST.get("shown")
        if self._planned is not None and shown and "ended_before" not in values:
            values["ended_before"] = _parse_time(shown)
        return values

    def show(
        self, *, subject: ErrorGroup | None = None, form: Form | None = None, **context: Any
    ) -> HttpResponse:
        if subject is not None and form is not None and self._planned is not None:
            context["plan"] = self._describe_plan(self._planned, subject, form)
        return super().show(subject=subject, form=form, **context)

    def _describe_plan(self, operation: Callable[..., Any], subject: ErrorGroup, form: Form) -> str:
        """Return the plan in words, for the filters in the form unless they are invalid."""
        typed = form.cleaned_data if form.is_bound else {}
        names = [name for name in _FILTERS if form.is_bound and name in form.changed_data]
        chosen = {name: typed[name] for name in names if typed.get(name) is not None}
        until = {"ended_before": self.now}
        try:
            plan = operation(error=subject, dry_run=True, **until | chosen)
        except ATPError:
            plan = operation(error=subject, dry_run=True, **until)
        return matching.describe_plan(plan)

    @property
    def _planned(self) -> Callable[..., Any] | None:
        return _PLANNED.get(self.kwargs["name"])


def _parse_time(text: str) -> datetime:
    """Parse a time that has a time zone. Raises InvalidOption."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidOption(f"shown={text!r}: must be a time with a time zone.")
    return time
