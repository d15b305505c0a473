"""The base of the admin's pages: read-only lists and pages of rows."""

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.paginator import Paginator
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.http import urlencode

from ..conf import settings
from ..web import authorization
from .filters import matching

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
        if authorization.rule() is None:
            return rows
        name = f"{self.opts.app_label}.view_{self.opts.model_name}"
        return authorization.narrowed(request.user, name, rows)

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
