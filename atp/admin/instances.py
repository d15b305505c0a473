"""Instances in the admin, and the verbs on them."""

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_ngettext
from django.template.response import TemplateResponse
from django.utils.html import format_html

from .. import queue
from ..exceptions import ATPError
from ..models import Inputs, Instance, LogRecord, Response, Task
from ..payload.own import HOOKS
from ..reports import hooks
from ..verbs.table import INSTANCE
from ..web import authorization, permissions
from ..web.actor import ADMIN, actor
from . import shown
from .base import ReadOnlyAdmin, link_to
from .filters import ReasonFilter, StateFilter, TypeFilter, matching
from .verbs import VerbActions

# The most log records on an Instance's own page.
LOG_SHOWN = 200
# The most steps that an Instance's page links.
STEPS_SHOWN = 200


@admin.register(Instance)
class InstanceAdmin(VerbActions, ReadOnlyAdmin):
    kind = INSTANCE
    actions = ("delete_selected",)
    list_display = (
        *("uuid", "type_link", "identifier", "state", "reason", "collection", "attempt"),
        *("percent", shown.time_of("created"), shown.time_of("finished")),
    )
    list_filter = (TypeFilter, StateFilter, ReasonFilter)
    list_select_related = ("type",)
    search_fields = ("uuid", "identifier")
    search_help_text = "identifier or uuid, or their beginning"
    _facts = (
        *("uuid", "type_link", "identifier", "state", "reason", "collection", "priority"),
        *("attempt", "restarts", "retries", "lost", "percent", "progress_message"),
        *(shown.time_of("start_before"), "created_by", shown.time_of("created")),
        *(shown.time_of("started"), shown.time_of("finished")),
    )
    # Pairs: a part of the page, and the permission to see it.
    _parts = (
        ("task", permissions.VIEW_TASK),
        ("inputs_value", permissions.VIEW_INPUTS),
        # What its enqueue has saved, and its hooks with their inputs.
        ("own_shown", permissions.VIEW_INPUTS),
        ("output", permissions.VIEW_RESPONSE),
        ("files", permissions.VIEW_RESPONSE),
        ("steps", permissions.VIEW_STEP),
        ("log", permissions.VIEW_LOG),
    )
    readonly_fields = ("type_link", "percent", *(name for name, _ in _parts))

    def get_fields(self, request, obj=None):
        return [
            *self._facts,
            *(n for n, needed in self._parts if permissions.holds(request.user, needed, obj)),
        ]

    def get_search_results(self, request, queryset, search_term):
        if not search_term:
            return queryset, False
        return queryset.filter(pk__in=matching(search_term).values("pk")), False

    type_link = link_to("type")

    @admin.display(description="progress")
    def percent(self, row):
        return None if row.progress is None else f"{row.progress:.0%}"

    @admin.display(description="task")
    def task(self, row):
        return self.link(self._of(Task, row))

    @admin.display(description="inputs")
    def inputs_value(self, row):
        return shown.inputs(self._of(Inputs, row))

    @admin.display(description="own")
    def own_shown(self, row):
        own = row.own
        if isinstance(own, dict) and HOOKS in own:
            own = own | {HOOKS: hooks.entries_shown(own[HOOKS])}
        return None if own is None else shown.plain(own)

    @admin.display(description="response")
    def output(self, row):
        return shown.output(self._of(Response, row))

    @admin.display(description="published files")
    def files(self, row):
        return shown.files(self._of(Response, row))

    @admin.display(description="steps")
    def steps(self, row):
        return shown.items(self.link(step, step.name) for step in queue.steps(row)[:STEPS_SHOWN])

    @admin.display(description="log")
    def log(self, row):
        records = LogRecord.objects.using(row._state.db).of_instance(row)
        latest = list(records.reverse()[: LOG_SHOWN + 1])
        url = self.address(LogRecord, "changelist", instance__id__exact=row.pk)
        told = f"the latest {LOG_SHOWN}; all of it" if len(latest) > LOG_SHOWN else "as a list"
        lines = shown.log(reversed(latest[:LOG_SHOWN]))
        return format_html('{}<a href="{}">{}</a>', lines, url, told)

    @staticmethod
    def _of(model, row):
        return model.objects.using(row._state.db).filter(pk=row.pk).first()

    # Actions

    def has_remove_permission(self, request):
        return request.user.has_perm("atp.delete_instance")

    # It replaces Django's action of this name, and shows that action's confirmation page.
    @admin.action(description="Delete selected Instances that have ended", permissions=["remove"])
    def delete_selected(self, request, queryset):
        queryset = authorization.narrowed(request.user, permissions.DELETE, queryset)
        chosen = self.chosen(request, queryset, lambda row: row.is_terminal)
        if not chosen:
            return None
        if not request.POST.get("post"):
            return self._confirmation(request, chosen)
        try:
            removed = queue.delete(*chosen, by=actor(request, ADMIN))
        except ATPError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            self.message_user(request, f"Instances removed: {removed}", messages.SUCCESS)
        return None

    def _confirmation(self, request, chosen):
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": "Delete multiple objects",
            "subtitle": None,
            "objects_name": model_ngettext(self.opts, len(chosen)),
            # Django 6.1 lists at most so many, a limit that it keeps on the ModelAdmin.
            "delete_confirmation_max_display": getattr(
                self, "delete_confirmation_max_display", None
            ),
            "deletable_objects": [[self.link(row) for row in chosen]],
            "model_count": [(self.opts.verbose_name_plural, len(chosen))],
            "queryset": chosen,
            "perms_lacking": (),
            "protected": (),
            "opts": self.opts,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/delete_selected_confirmation.html", context)
