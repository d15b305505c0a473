"""Gates and limits in the admin."""

from django.contrib import admin

from ..models import Gate, Limit
from . import shown
from .base import ReadOnlyAdmin, link_to


class ControlAdmin(ReadOnlyAdmin):
    """The admin of gates or limits; operators set them on the pages, not here."""

    ordering = ("subject",)
    list_select_related = ("type",)
    search_fields = ("subject",)
    readonly_fields = ("type_link",)

    type_link = link_to("type")


@admin.register(Gate)
class GateAdmin(ControlAdmin):
    list_display = (
        *("subject", "mode", "reason", "who"),
        *(shown.time_of("since"), shown.time_of("until")),
    )
    fields = ("subject", "type_link", "collection", *list_display[1:])


@admin.register(Limit)
class LimitAdmin(ControlAdmin):
    list_display = (
        *("subject", "max_running", "max_running_per_collection", "rate", "burst", "weight"),
        *("max_waiting", "max_wait", "is_set", "who"),
        shown.time_of("since"),
    )
    fields = (
        *("subject", "type_link", "collection", *list_display[1:], "tokens"),
        shown.time_of("refilled"),
    )
