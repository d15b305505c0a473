"""Tailers and their cursors in the admin."""

from django.contrib import admin

from ..models import Cursor, Tailer
from . import shown
from .base import ReadOnlyAdmin


@admin.register(Tailer)
class TailerAdmin(ReadOnlyAdmin):
    ordering = ("identifier",)
    list_display = (
        *("identifier", "source", shown.time_of("read_at")),
        *("records", "enqueued", "rejected", "behind", "gaps", "lost", "passed_over", "skipped"),
    )
    search_fields = ("identifier",)
    fields = (*list_display, shown.time_of("lost_at"), "notes", "error")


@admin.register(Cursor)
class CursorAdmin(ReadOnlyAdmin):
    ordering = ("tailer", "shard")
    list_display = (
        *("tailer", "shard", "position"),
        *(shown.time_of("moved"), shown.time_of("missing_since")),
    )
    search_fields = ("tailer", "shard")
    fields = list_display
