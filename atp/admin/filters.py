"""Filters and search of the admin's lists, in the queue's own database."""

import logging
import re

from django.contrib import admin
from django.db.models import Q

from ..conf import settings
from ..models import Instance, Type
from ..rows.log import Kind
from ..states import Event, Reason, State
from ..web.authorization import scope_of

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
