"""Read-only lists and pages, filters, actions from the table, stored values as escaped text."""

import json
import logging
import re
from collections import Counter

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode

from .. import text as wording
from ..conf import settings
from ..exceptions import ATPError
from ..models import Instance, Kind, Type
from ..operations.table import VERBS
from ..payload import codec
from ..reports import documents
from ..states import Event, Reason, State
from ..web import permissions
from ..web.permissions import ADMIN, actor, scope_of

# The base of the admin's pages: read-only lists and pages of rows.

# The lookups of the links between the pages.
LOOKUPS = {
    *("instance__id__exact", "graph__id__exact", "schedule__id__exact", "error__id__exact"),
    *("subject__exact", "upstream__exact", "downstream__exact"),
}
# The most rows that a list counts and pages through; filters lead to the others.
COUNTED = 10_000


def link_to(name, description=None):
    """Return a column with a link to the row that a foreign key refers to."""

    @admin.display(description=description or name.replace("_", " "))
    def column(self, row):
        return self.link(getattr(row, name))

    return column


class BoundedPaginator(Paginator):
    """A paginator that counts up to COUNTED rows: counting a long history would be slow."""

    @cached_property
    def count(self):
        return self.object_list.order_by()[:COUNTED].count()


class ReadOnlyAdmin(admin.ModelAdmin):
    """The admin of a table in the queue's database, without any form that writes."""

    ordering = ("-pk",)
    # Sorting a long history by another column would read all of it.
    sortable_by = ()
    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50

    def get_queryset(self, request):
        rows = super().get_queryset(request).using(settings.DATABASE)
        if permissions.rule() is None:
            return rows
        name = f"{self.opts.app_label}.view_{self.opts.model_name}"
        return permissions.narrowed(request.user, name, rows)

    def lookup_allowed(self, lookup, value, request=None):
        """Allow filters by no columns but those of the lists' own filters and links.

        By others a user could read out what the pages hide, a character at a time.
        """
        own = {each.parameter_name for each in self.list_filter}
        if lookup in own | LOOKUPS or not self._is_field(lookup):
            return super().lookup_allowed(lookup, value, request)
        return False

    def _is_field(self, lookup):
        name = lookup.partition("__")[0]
        return name == "pk" or name in {each.name for each in self.opts.get_fields()}

    def has_add_permission(self, request, obj=None):
        return False

    def has_change_permission(self, request, obj=None):
        return False

    def has_delete_permission(self, request, obj=None):
        return False

    def link(self, row, text=None):
        """Return a link to the page of a row; None if the row is None."""
        if row is None:
            return None
        return format_html(
            '<a href="{}">{}</a>',
            self.address(type(row), "change", quote(row.pk)),
            str(row) if text is None else text,
        )

    def address(self, model, page, *args, **query):
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        url = reverse(name, args=args, current_app=self.admin_site.name)
        return f"{url}?{urlencode(query)}" if query else url


class OfInstanceAdmin(ReadOnlyAdmin):
    """The admin of a table of rows that each belong to an Instance; the search is by Instance."""

    list_select_related = ("instance__type",)
    search_fields = ("instance__uuid", "instance__identifier")
    search_help_text = "identifier or uuid of the Instance, or their beginning"

    def get_search_results(self, request, queryset, search_term):
        if not search_term:
            return queryset, False
        return queryset.filter(instance__in=matching(search_term)), False

    instance_link = link_to("instance")

    @admin.display(description="type")
    def instance_type(self, row):
        return None if row.instance is None else self.link(row.instance.type)


# Filters and search of the admin's lists, in the queue's own database.

_PREFIX = re.compile(r"[0-9a-f]{8,32}")


def matching(term):
    """Return the Instances whose identifier or uuid starts with ``term``."""
    wanted = Q(identifier__startswith=term)
    rows = Instance.objects.using(settings.DATABASE)
    digits = term.lower().replace("-", "")
    if _PREFIX.fullmatch(digits):
        return rows.filter(wanted | Q(pk__in=rows.named(digits).values("pk")))
    return rows.filter(wanted)


class _ChoiceFilter(admin.SimpleListFilter):
    """A filter by one of a few words. An unknown word in the address is ignored."""

    def queryset(self, request, queryset):
        known = {str(value) for value, _ in self.lookup_choices}
        return self.select(queryset, self.value()) if self.value() in known else queryset


class TypeFilter(_ChoiceFilter):
    title = parameter_name = "type"

    def lookups(self, request, model_admin):
        names = Type.objects.using(settings.DATABASE).values_list("identifier", flat=True)
        opts = model_admin.opts
        scope = scope_of(request.user, f"{opts.app_label}.view_{opts.model_name}")
        return [(name, name) for name in names if scope.touches(name)]

    def select(self, queryset, value):
        # Filter by primary key: a join on the identifier would not use the index in its order.
        types = Type.objects.using(settings.DATABASE)
        return queryset.filter(type_id=types.values_list("pk", flat=True).get(identifier=value))


class StateFilter(_ChoiceFilter):
    title = parameter_name = "state"

    def lookups(self, request, model_admin):
        return State.choices

    def select(self, queryset, value):
        return queryset.selected(state=value)


class ReasonFilter(_ChoiceFilter):
    title = parameter_name = "reason"

    def lookups(self, request, model_admin):
        return [(reason, reason) for reason in Reason.values]

    def select(self, queryset, value):
        return queryset.selected(reason=value)


class ClaimedFilter(_ChoiceFilter):
    title, parameter_name = "claimed", "claimed"

    def lookups(self, request, model_admin):
        return [("yes", "Yes"), ("no", "No")]

    def select(self, queryset, value):
        return queryset.claimed() if value == "yes" else queryset.waiting()


class KindFilter(_ChoiceFilter):
    title = parameter_name = "kind"

    def lookups(self, request, model_admin):
        return [*Event.choices, *((kind.value, kind.value) for kind in Kind)]

    def select(self, queryset, value):
        return queryset.filter(kind=value)


class LevelFilter(_ChoiceFilter):
    title, parameter_name = "level", "from_level"

    def lookups(self, request, model_admin):
        levels = (logging.INFO, logging.WARNING, logging.ERROR)
        return [(str(level), f"{logging.getLevelName(level)} and above") for level in levels]

    def select(self, queryset, value):
        return queryset.filter(level__gte=int(value))


# Stored values as text for the admin's pages, always escaped, so never as HTML (G14).

# The most characters of inputs, a response or a message on a page.
SHOWN = 4000


def time_of(name, description=None):
    """Return a column with the time of a field, to the second, in the current time zone."""

    @admin.display(description=description or name.replace("_", " "))
    def column(row):
        value = getattr(row, name)
        return None if value is None else f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S}"

    column.__name__ = name
    return column


def short(text, limit):
    return text if len(text) <= limit else f"{text[:limit]}…"


def preformatted(text):
    return format_html('<pre style="white-space: pre-wrap">{}</pre>', short(text, SHOWN))


def inputs(row):
    """Return the inputs in a row as text, with masks for what is sensitive."""
    if row is None:
        return None
    return result(row, documents.shown_data(row) if row.format == codec.JSON else None)


def result(row, data=None):
    """Return a stored value as text."""
    if row.format != codec.JSON:
        return f"a signed {row.format}, not opened here"
    return preformatted(wording.indented(row.data if data is None else data))


def plain(value):
    """Return a JSON value as text."""
    return preformatted(wording.indented(json.dumps(value, ensure_ascii=False)))


def output(row):
    """Return the type and size of a response, with the beginning of its text if it is text."""
    if row is None or not row.content_type:
        return None
    kind = row.content_type.partition(";")[0].strip().lower()
    told = f"{row.content_type}, {row.size} bytes" + (f", in {row.file}" if row.file else "")
    is_text = kind == "application/json" or kind.startswith("text/")
    if not is_text or row.data is None:
        return told
    text = bytes(row.data).decode(errors="replace")
    shown = preformatted(wording.indented(text) if kind == "application/json" else text)
    return format_html("{}{}", told, shown)


def files(row):
    if row is None or not row.files:
        return None
    return items(f"{f['path']} ({f['content_type']}, {f['size']} bytes)" for f in row.files)


def items(lines):
    """Return lines as an HTML list; None if there are none."""
    listed = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    return format_html("<ul>{}</ul>", listed) if listed else None


_LOG_ROW = "<tr>" + "<td>{}</td>" * 5 + '<td style="white-space: pre-wrap">{}</td></tr>'


def log(records):
    rows = (
        (
            f"{timezone.localtime(record.time):%Y-%m-%d %H:%M:%S.%f}"[:-3],
            f"{record.event} → {record.state}" if record.event else "",
            "" if record.attempt is None else record.attempt,
            logging.getLevelName(record.level),
            record.who,
            short(record.message, SHOWN),
        )
        for record in records
    )
    return format_html("<table>{}</table>", format_html_join("", _LOG_ROW, rows))


# Actions of the admin, made from the table of verbs.

# The most rows of one action. A confirmation has a form field for each row, and Django accepts
# 1000 fields.
MOST = 500


class VerbActions:
    """A mixin of admins: it adds an action for each verb without parameters or a question."""

    kind = None

    def get_actions(self, request, action_location=None):
        # Django before 6.1 knows no location.
        where = {} if action_location is None else {"action_location": action_location}
        found = super().get_actions(request, **where)
        for verb in self.verbs() if "_popup" not in request.GET else ():
            if not permissions.lacking(request.user, verb.needs):
                action = self.get_action(_action(verb), **where)
                # None: Django offers it at another location alone.
                if action is not None:
                    found[verb.id] = action
        return found

    def verbs(self):
        """Return the verbs that become actions."""
        return [verb for verb in VERBS[self.kind].values() if not verb.has_page]

    def subject_of(self, row):
        """Return the subject of the verbs for a row of the model."""
        return row

    def chosen(self, request, queryset, is_allowed):
        """Return the rows whose state allows an action; tell the user how many do not."""
        rows = list(queryset.order_by("pk")[: MOST + 1])
        if len(rows) > MOST:
            told = f"At most {MOST} at a time; manage.py atp takes any number."
            self.message_user(request, told, messages.ERROR)
            return []
        chosen = [row for row in rows if is_allowed(row)]
        if left := len(rows) - len(chosen):
            told = f"Left alone, as their state does not allow it: {left}"
            self.message_user(request, told, messages.WARNING)
        return chosen


def _action(verb):
    def act(self, request, queryset):
        outcomes = Counter()
        allowed = getattr(verb, "is_allowed", lambda _: True)
        for row in self.chosen(request, queryset, allowed):
            subject = self.subject_of(row)
            lacking = permissions.lacking(request.user, verb.permissions(subject))
            if lacking:
                told = f"{row}: {permissions.refusal(lacking)}"
                self.message_user(request, told, messages.WARNING)
                continue
            try:
                permissions.require_operation(request.user, verb, subject, {})
            except PermissionDenied as error:
                self.message_user(request, f"{row}: {error}", messages.WARNING)
                continue
            try:
                outcome = verb.perform(subject, actor(request, ADMIN))
            except ATPError as error:  # another user has changed this row meanwhile
                self.message_user(request, str(error), messages.WARNING)
            else:
                outcomes[outcome.told] += 1
        for told, count in outcomes.items():
            self.message_user(request, f"{verb.label} ({count}): {told}", messages.SUCCESS)

    act.__name__ = verb.id
    act.short_description = f"{verb.label}: {verb.explanation}"
    return act
