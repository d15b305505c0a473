"""The pages for many Instances at once: all that match, those that are ticked, an export.

Everything here is an operation that exists for one Instance, or in the API for all that match.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import cached_property

from .. import queue, text
from ..conf import settings
from ..exceptions import ATPError, InvalidOption, InvalidSelection
from ..models import Instance
from ..operations import matching
from ..operations.matching import CANCEL, DELETE, REDRIVE
from ..operations.operation import Operation, time_from_json
from ..operations.table import INSTANCE, MATCHING, OPERATIONS
from ..reports.listing import NEWEST_FIRST, PORTION, Export
from ..states import LIVE, State
from ..web import permissions
from ..web.filters import ListedFilter, bind_filters
from ..web.permissions import PAGE, Place, actor
from .base import Page
from .operations import KindForm, OperationPage

# At most this many Instances can be ticked: a page of the list.
MOST_TICKED = 50
# A plan names this many of the Instances.
SAMPLES = 5
# The parameters in the form of an operation on all that match; the list's filters give the others.
_IN_FORM = ("rate", "canary", "threshold")

# All Instances that match the filters of the list.

# The filters of the list that each operation understands, besides ``state``.
_ALWAYS = frozenset(
    {"type", "collection", "no_collection", "created_after", "created_before", "created_by"}
    | {"tried_again"}
)
_OF_DEAD_LETTERS = _ALWAYS | {"reason", "ended_after", "ended_before"}
_FILTERS = {REDRIVE: _OF_DEAD_LETTERS, CANCEL: _ALWAYS, DELETE: _OF_DEAD_LETTERS}
_STATES = {REDRIVE: {State.FAILED}, CANCEL: LIVE, DELETE: {State.FAILED}}
_CALLS: dict[str, Callable[..., Any]] = {
    REDRIVE: queue.redrive_matching,
    CANCEL: queue.cancel_matching,
    DELETE: queue.delete_matching,
}


def matching_arguments(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which an operation acts on all Instances that a list shows.

    ``values`` are the values of the list's filters. Raises InvalidSelection if there are none, or
    if the operation has no such filter.
    """
    others = sorted(set(values) - _FILTERS[name] - {"state"})
    state = values.get("state")
    if not values:
        raise InvalidSelection(f"Filter the list first. Otherwise this would {name} everything.")
    if others:
        raise InvalidSelection(
            f"All that match cannot be chosen by {', '.join(others)} for “{name}”. Tick Instances "
            "in the list instead."
        )
    if state and state not in _STATES[name]:
        raise InvalidSelection(f"“{name}” is not possible for Instances that are {state}.")
    arguments = {key: values[key] for key in values if key not in ("no_collection", "state")}
    if "type" in values:
        arguments["type"] = values["type"].identifier
    if "no_collection" in values:
        arguments["collection"] = ""
    if "tried_again" in values:
        arguments["tried_again"] = True
    if state and name == CANCEL:
        arguments["state"] = state
    return arguments | {"all": True}


def operations_on_all(user: Any, values: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that the user may apply to all Instances that match these filters."""
    found = []
    for name, operation in OPERATIONS[MATCHING].items():
        try:
            arguments = matching_arguments(name, values)
            permissions.require_operation(user, operation, None, arguments)
        except (InvalidSelection, PermissionDenied):
            continue
        if not permissions.missing_permissions(user, operation.needs):
            found.append(operation)
    return found


class MatchingPage(OperationPage):
    """The page that shows the plan of an operation on all Instances that match, and performs it.

    The query string has the filters, as that of the list.
    """

    kind = MATCHING
    view_permission = permissions.VIEW_INSTANCE
    parameters = tuple(ListedFilter.base_filters)

    @property
    def verb(self) -> Any:
        """The operation, without the parameters that the filters of the list set."""
        found = super().verb
        return replace(found, parameters=tuple(p for p in found.parameters if p.name in _IN_FORM))

    def find(self) -> Place:
        """Return the Type and the collection that contain all that the filters can select."""
        arguments = self._arguments
        type = arguments.get("type")
        return type, None if type is None else arguments.get("collection")

    @cached_property
    def _values(self) -> dict[str, Any]:
        rows = Instance.objects.using(settings.DATABASE)
        return bind_filters(ListedFilter, self.request.GET, rows, user=self.request.user).values

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return matching_arguments(self.kwargs["name"], self._values)

    def page_to_return_to(self) -> str:
        return f"{reverse('atp:instances')}?{self.request.GET.urlencode()}"

    def heading(self, subject: Place) -> str:
        shown = {name: value for name, value in self.request.GET.items() if value}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())

    def shown_state(self, subject: Place) -> str:
        """Return the time up to which the plan counts Instances."""
        return self.now.isoformat()

    def arguments(self, form: KindForm) -> dict[str, Any]:
        """Return the arguments for the operation.

        They leave out Instances that have ended, or for "cancel" were enqueued, since the page was
        shown.
        """
        shown = self.request.POST.get("shown", "")
        try:
            until = time_from_json(shown)
        except ValueError as error:
            raise InvalidOption(f"shown={shown!r}: {error}") from None
        return form.changed_values() | self._arguments_until(until)

    def _arguments_until(self, until: datetime) -> dict[str, Any]:
        name = "created_before" if self.kwargs["name"] == CANCEL else "ended_before"
        given = self._arguments.get(name)
        return self._arguments | {name: until if given is None else min(given, until)}

    def show(self, *, form: Form | None = None, **context: Any) -> HttpResponse:
        if form is not None:
            context |= self._plan(self._arguments_until(self.now))
        return super().show(form=form, **context)

    def _plan(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the template's context for the plan: in words, and some of the Instances."""
        plan = _CALLS[self.kwargs["name"]](dry_run=True, **arguments)
        rows = self.narrow_rows(plan.selection.rows(), permissions.VIEW_INSTANCE)
        samples = rows.select_related("type").order_by(*NEWEST_FIRST)[:SAMPLES]
        return {"plan": matching.describe_plan(plan), "samples": samples}


# The Instances that are ticked.

# The operations, and what has been done to an Instance after each.
TICKED = {REDRIVE: "redriven", CANCEL: "cancelled", DELETE: "removed"}


class TickedPage(Page):
    """Performs an operation on each Instance that is ticked in the list, and says what came of it.

    "cancel" and "delete" ask the user to confirm.
    """

    template_name = "atp/ticked.html"
    fields = ("ticked", "every", "page", "sure", "back")
    http_method_names = ("post", "options")

    @property
    def operation(self) -> Any:
        """The operation that the address names. Raises Http404 if ticked rows have no such one."""
        name = self.kwargs["name"]
        if name not in TICKED:
            raise Http404(f"There is no operation {name!r} on what is ticked.")
        return OPERATIONS[INSTANCE][name]

    @property
    def permissions(self) -> tuple[str, ...]:  # type: ignore[override]
        return (permissions.VIEW_INSTANCE, *self.operation.needs)

    @staticmethod
    def check_names(data: QueryDict, known: tuple[str, ...], what: str) -> None:
        """Check the names as :meth:`Page.check_names` does, but allow ``ticked`` several times."""
        once = data.copy()
        if "ticked" in once:
            once.setlist("ticked", [once.getlist("ticked")[-1]])
        Page.check_names(once, known, what)

    def page_to_return_to(self) -> str:
        query = QueryDict(self.request.POST.get("back", "")).urlencode()
        address = reverse("atp:instances")
        return f"{address}?{query}" if query else address

    def post(self, request: HttpRequest, name: str) -> HttpResponseBase:
        uuids = self._ticked()
        if not uuids:
            messages.warning(request, "Nothing is ticked.", fail_silently=True)
            return redirect(self.page_to_return_to())
        if name != REDRIVE and "sure" not in request.POST:
            return self.show(
                verb=self.operation,
                instances=self._read(uuids),
                back=self.page_to_return_to(),
                query=request.POST.get("back", ""),
            )
        messages.success(request, self._perform_all(uuids), fail_silently=True)
        return redirect(self.page_to_return_to())

    def _ticked(self) -> list[str]:
        """Return the uuids that are ticked, or those of the whole page. Raises BadRequest."""
        data = self.request.POST
        uuids = data.get("page", "").split() if "every" in data else data.getlist("ticked")
        if len(uuids) > MOST_TICKED:
            raise BadRequest(f"{len(uuids)} are ticked, but at most {MOST_TICKED} can be.")
        return list(dict.fromkeys(uuids))

    def _read(self, uuids: Iterable[str]) -> list[Instance]:
        """Return those of the Instances that exist and that the user may see."""
        found = []
        for uuid in uuids:
            try:
                found.append(self.look_up(Instance, uuid, partial(queue.get, uuid)))
            except (ATPError, PermissionDenied):
                continue
        self.subject = None
        return found

    def _perform_all(self, uuids: Sequence[str]) -> str:
        """Perform the operation on each Instance; return a sentence about all of them."""
        refused: Counter[str] = Counter(filter(None, map(self._perform, uuids)))
        count = refused.total()
        done = f"{text.number(len(uuids) - count)} {TICKED[self.operation.name]}"
        reasons = "; ".join(f"{why} ({number})" for why, number in refused.most_common())
        return f"{done}, {text.number(count)} refused: {reasons}" if count else f"{done}."

    def _perform(self, uuid: str) -> str:
        """Perform the operation on one Instance; return why it was refused, or "" if it was not."""
        operation, user = self.operation, self.request.user
        try:
            instance = permissions.look_up(
                user, lambda: queue.get(uuid), Instance, uuid, *self.permissions
            )
            lacking = permissions.missing_permissions(user, operation.permissions(instance))
            if lacking:
                return permissions.describe_missing(lacking)
            if not operation.is_allowed(instance):
                return f"It is {text.describe_state(instance)}."
            permissions.require_operation(user, operation, instance, {})
            outcome = operation.perform(instance, actor(self.request, PAGE))
        except (ATPError, PermissionDenied) as error:
            return str(error)
        return outcome.told if outcome.value is False else ""


# The export of all rows of the list.

_LINES: dict[str, tuple[str, Callable[[Export], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", Export.csv),
    "jsonl": ("application/jsonl; charset=utf-8", Export.json_lines),
}


class ExportPage(Page):
    """The download of all Instances that match the filters, as CSV or as JSON lines."""

    permissions = (permissions.VIEW_INSTANCE,)
    parameters = (*ListedFilter.base_filters, "format")

    def get(self, request: HttpRequest) -> HttpResponseBase:
        format = request.GET.get("format", "csv")
        if format not in _LINES:
            raise BadRequest(f"format={format!r} must be one of: {', '.join(_LINES)}.")
        rows = self.narrow_rows(Instance.objects.using(settings.DATABASE).select_related("type"))
        filters = bind_filters(
            ListedFilter, request.GET, rows, others=("format",), user=request.user
        )
        sees_inputs = self.may(permissions.VIEW_INPUTS)
        export = Export(
            filters.qs,
            errors=self._with_visible_errors,
            inputs=self._with_visible_inputs if sees_inputs else None,
        )
        content_type, lines = _LINES[format]
        answer = _StreamedLines(_join_lines(lines(export)), content_type=content_type)
        answer["Content-Disposition"] = f'attachment; filename="instances.{format}"'
        return answer

    def _with_visible_errors(self, instances: Sequence[Instance]) -> list[Instance]:
        return [each for each in instances if permissions.may_see_errors(self.request.user, each)]

    def _with_visible_inputs(self, instances: Sequence[Instance]) -> list[Instance]:
        return self.filter_permitted(instances, permissions.VIEW_INPUTS)


def _join_lines(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines in parts, each with as many as the export reads at a time."""
    while part := "".join(islice(lines, PORTION)):
        yield part


class _StreamedLines(StreamingHttpResponse):
    """A response that sends parts as soon as they are made, under WSGI and ASGI."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each part as soon as it is made. Django would make all parts first."""
        parts: Any = iter(self.streaming_content)  # type: ignore[arg-type]
        while (part := await sync_to_async(next)(parts, None)) is not None:  # type: ignore[call-arg]
            yield part
