"""Base classes and helpers for the admin.

The lists and pages are read-only. Actions come from the table of operations. Stored values are
shown as escaped text.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ..conf import settings
from ..exceptions import ATPError
from ..models import Inputs, Instance, Kind, LogRecord, Response, Schedule, Type, Undo
from ..operations.operation import Operation
from ..operations.table import OPERATIONS
from ..payload import codec
from ..reports import documents
from ..states import Event, Reason, State
from ..text import indented
from ..web import permissions
from ..web.permissions import ADMIN, actor, grant_of

# The lookups of the links between the pages.
LOOKUPS = {
    *("instance__id__exact", "graph__id__exact", "schedule__id__exact", "error__id__exact"),
    *("subject__exact", "upstream__exact", "downstream__exact"),
}
# The most rows that a list counts and pages through. Users reach the others by filters.
COUNTED = 10_000
# The most characters of inputs, a response or a message on a page.
MAX_CHARACTERS = 4000
# The most rows of one action. A confirmation has a form field for each row, and Django accepts
# 1000 fields.
MOST = 500

_UUID_PREFIX = re.compile(r"[0-9a-f]{8,32}")
_LOG_ROW = "<tr>" + "<td>{}</td>" * 5 + '<td style="white-space: pre-wrap">{}</td></tr>'


# Columns of lists, which are also fields of pages. Their type is Any since Django's stubs allow
# no callable among ``fields``.


def link_column(name: str, description: str | None = None) -> Any:
    """Return a column with a link to the row that a foreign key refers to."""

    @admin.display(description=description or name.replace("_", " "))
    def column(self: "ReadOnlyAdmin", row: Model) -> str | None:
        return self.link(getattr(row, name))

    return column


def time_column(name: str, description: str | None = None) -> Any:
    """Return a column that shows a field's time in the current time zone, to the second."""

    @admin.display(description=description or name.replace("_", " "))
    def column(row: Model) -> str | None:
        value = getattr(row, name)
        return None if value is None else f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S}"

    column.__name__ = name
    return column


# The bases of the admin's pages


class BoundedPaginator(Paginator):
    """A paginator that counts at most COUNTED rows, because counting a long history is slow."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return rows.order_by()[:COUNTED].count()


class ReadOnlyAdmin(admin.ModelAdmin):
    """The base class for the read-only admin of a table in the queue's database."""

    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    # Sorting a long history by another column would read all of it.
    sortable_by = ()
    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50
    list_filter: ClassVar[tuple[type[admin.SimpleListFilter], ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).using(settings.DATABASE)
        if permissions.rule() is None:
            return rows
        name = f"{self.opts.app_label}.view_{self.opts.model_name}"
        return permissions.narrow_rows(request.user, name, rows)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only filters by columns that the list's own filters and links use.

        With other columns, users could find out hidden values one character at a time.
        """
        own = {each.parameter_name for each in self.list_filter}
        if lookup in own | LOOKUPS or not self._is_field(lookup):
            return super().lookup_allowed(lookup, value, request)
        return False

    def _is_field(self, lookup: str) -> bool:
        name = lookup.partition("__")[0]
        return name == "pk" or name in {each.name for each in self.opts.get_fields()}

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def link(self, row: Model | None, text: str | None = None) -> str | None:
        """Return a link to a row's page, or None if the row is None."""
        if row is None:
            return None
        return format_html(
            '<a href="{}">{}</a>',
            self.address(type(row), "change", quote(row.pk)),
            str(row) if text is None else text,
        )

    def address(self, model: type[Model], page: str, *args: str, **query: Any) -> str:
        """Return the address of a model's page: "changelist", or "change" with a row's key."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        url = reverse(name, args=args, current_app=self.admin_site.name)
        return f"{url}?{urlencode(query)}" if query else url


class InstancePartAdmin(ReadOnlyAdmin):
    """The admin of a table in which each row belongs to an Instance.

    Users search for rows by the identifier or uuid of the Instance.
    """

    list_select_related: ClassVar[tuple[str, ...]] = ("instance__type",)
    search_fields = ("instance__uuid", "instance__identifier")
    search_help_text = "identifier or uuid of the Instance, or their beginning"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        return queryset.filter(instance__in=find_instances(search_term)), False

    instance_link = link_column("instance")

    @admin.display(description="type")
    def instance_type(self, row: Any) -> str | None:
        return None if row.instance is None else self.link(row.instance.type)


# Search and filters, in the queue's own database


def find_instances(term: str) -> QuerySet[Instance]:
    """Return the Instances whose identifier or uuid starts with ``term``."""
    by_identifier = Q(identifier__startswith=term)
    rows = Instance.objects.using(settings.DATABASE)
    digits = term.lower().replace("-", "")
    if _UUID_PREFIX.fullmatch(digits):
        return rows.filter(by_identifier | Q(pk__in=rows.named(digits).values("pk")))
    return rows.filter(by_identifier)


class _ChoiceFilter(admin.SimpleListFilter):
    """A list filter with a few words to choose from. It ignores other words in the address."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        choices = {str(choice) for choice, _ in self.lookup_choices}
        return self.select(queryset, value) if value is not None and value in choices else queryset

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        """Return the rows that the chosen word, ``value``, selects."""
        raise NotImplementedError


class TypeFilter(_ChoiceFilter):
    title = parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        names = Type.objects.using(settings.DATABASE).values_list("identifier", flat=True)
        opts = model_admin.opts
        scope = grant_of(request.user, f"{opts.app_label}.view_{opts.model_name}")
        return [(name, name) for name in names if scope.touches(name)]

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        # Filter by primary key, because a join on the identifier would not use the index in order.
        types = Type.objects.using(settings.DATABASE)
        return queryset.filter(type_id=types.values_list("pk", flat=True).get(identifier=value))


class StateFilter(_ChoiceFilter):
    title = parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin
    ) -> Sequence[tuple[str, Any]]:
        return State.choices

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        return queryset.selected(state=value)


class ReasonFilter(_ChoiceFilter):
    title = parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [(reason, reason) for reason in Reason.values]

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        return queryset.selected(reason=value)


class ClaimedFilter(_ChoiceFilter):
    title, parameter_name = "claimed", "claimed"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("yes", "Yes"), ("no", "No")]

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        return queryset.claimed() if value == "yes" else queryset.waiting()


class KindFilter(_ChoiceFilter):
    title = parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, Any]]:
        return [(kind.value, kind.value) for kind in (*Event, *Kind)]

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        return queryset.filter(kind=value)


class LevelFilter(_ChoiceFilter):
    title, parameter_name = "level", "from_level"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        levels = (logging.INFO, logging.WARNING, logging.ERROR)
        return [(str(level), f"{logging.getLevelName(level)} and above") for level in levels]

    def select(self, queryset: Any, value: str) -> QuerySet[Any]:
        return queryset.filter(level__gte=int(value))


# Stored values as text for the admin's pages, always escaped, so never as HTML (G14)


def truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def preformatted(text: str) -> SafeString:
    shown = truncate(text, MAX_CHARACTERS)
    return format_html('<pre style="white-space: pre-wrap">{}</pre>', shown)


def describe_inputs(row: Inputs | Schedule | Undo | None) -> str | None:
    """Return the inputs in a row as text with sensitive values masked, or None without a row."""
    if row is None:
        return None
    data = documents.masked_data(row) if row.format == codec.JSON else row.data
    return describe_value(row.format, data)


def describe_value(format: str, data: str) -> str:
    """Return a stored value as text if it is JSON. Other formats are not opened."""
    if format != codec.JSON:
        return f"a signed {format}, not opened here"
    return preformatted(indented(data))


def describe_json(value: Any) -> SafeString:
    """Return a JSON value as indented text."""
    return preformatted(indented(json.dumps(value, ensure_ascii=False)))


def describe_output(row: Response | None) -> str | None:
    """Return a Response's content type and size, and the beginning of its output if it is text."""
    if row is None or not row.content_type:
        return None
    kind = row.content_type.partition(";")[0].strip().lower()
    facts = f"{row.content_type}, {row.size} bytes" + (f", in {row.file}" if row.file else "")
    is_text = kind == "application/json" or kind.startswith("text/")
    if not is_text or row.data is None:
        return facts
    text = bytes(row.data).decode(errors="replace")
    body = preformatted(indented(text) if kind == "application/json" else text)
    return format_html("{}{}", facts, body)


def list_files(row: Response | None) -> str | None:
    """Return a Response's published files as an HTML list, or None if it has none."""
    if row is None or not row.files:
        return None
    return html_list(f"{f['path']} ({f['content_type']}, {f['size']} bytes)" for f in row.files)


def html_list(lines: Iterable[Any]) -> str | None:
    """Return lines as an HTML list, or None without lines."""
    items = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    return format_html("<ul>{}</ul>", items) if items else None


def log_table(records: Iterable[LogRecord]) -> SafeString:
    """Return log records as an HTML table."""
    rows = (
        (
            f"{timezone.localtime(record.time):%Y-%m-%d %H:%M:%S.%f}"[:-3],
            f"{record.event} → {record.state}" if record.event else "",
            "" if record.attempt is None else record.attempt,
            logging.getLevelName(record.level),
            record.who,
            truncate(record.message, MAX_CHARACTERS),
        )
        for record in records
    )
    return format_html("<table>{}</table>", format_html_join("", _LOG_ROW, rows))


# Actions, made from the table of operations


class OperationActions(ReadOnlyAdmin):
    """An admin with an action for each operation that needs no parameters and no confirmation."""

    # The key in the table of operations.
    kind: str

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        # Django before 6.1 has no parameter ``action_location``.
        where: dict[str, Any] = (
            {} if action_location is None else {"action_location": action_location}
        )
        actions: dict[str, Any] = super().get_actions(request, **where)
        for operation in self.operations() if "_popup" not in request.GET else ():
            if not permissions.missing_permissions(request.user, operation.needs):
                action = self.get_action(_make_action(operation), **where)
                # The action is None if Django offers it only at another location.
                if action is not None:
                    actions[operation.id] = action
        return actions

    def operations(self) -> list[Operation]:
        """Return the operations that become actions in this admin."""
        return [each for each in OPERATIONS[self.kind].values() if not each.has_page]

    def target_of(self, row: Any) -> Any:
        """Return the target on which an action acts for a row; by default the row itself."""
        return row

    def select_allowed(
        self, request: HttpRequest, queryset: QuerySet[Any], is_allowed: Callable[[Any], bool]
    ) -> list[Any]:
        """Return the rows whose state allows an action, and show the user how many are skipped."""
        rows = list(queryset.order_by("pk")[: MOST + 1])
        if len(rows) > MOST:
            text = f"An action takes at most {MOST} rows. manage.py atp takes any number."
            self.message_user(request, text, messages.ERROR)
            return []
        selected = [row for row in rows if is_allowed(row)]
        if left := len(rows) - len(selected):
            text = f"Skipped, because their state does not allow this: {left}"
            self.message_user(request, text, messages.WARNING)
        return selected


def _make_action(operation: Operation) -> Callable[..., None]:
    @admin.action(description=f"{operation.label}: {operation.explanation}")
    def act(self: OperationActions, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        outcomes: Counter[str] = Counter()
        is_allowed = getattr(operation, "is_allowed", lambda _: True)
        for row in self.select_allowed(request, queryset, is_allowed):
            target = self.target_of(row)
            lacking = permissions.missing_permissions(request.user, operation.permissions(target))
            if lacking:
                text = f"{row}: {permissions.describe_missing(lacking)}"
                self.message_user(request, text, messages.WARNING)
                continue
            try:
                permissions.require_operation(request.user, operation, target, {})
            except PermissionDenied as error:
                self.message_user(request, f"{row}: {error}", messages.WARNING)
                continue
            try:
                outcome = operation.perform(target, actor(request, ADMIN))
            except ATPError as error:  # another user has changed this row meanwhile
                self.message_user(request, str(error), messages.WARNING)
            else:
                outcomes[outcome.told] += 1
        for text, count in outcomes.items():
            self.message_user(request, f"{operation.label} ({count}): {text}", messages.SUCCESS)

    act.__name__ = operation.id
    return act
