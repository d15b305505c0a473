"""Removing an Instance from a page: what goes with it, and a button that does it."""

from django.contrib import messages
from django.shortcuts import redirect

from .. import overview, queue
from ..web import permissions
from ..web.actor import PAGE, actor
from .base import Page


class DeletePage(Page):
    permissions = (permissions.VIEW_INSTANCE, permissions.DELETE)
    template_name = "atp/delete.html"

    def get(self, request, uuid):
        instance = queue.get(uuid)
        return self.show(instance=instance, task=queue.task(instance), now=overview.now())

    def post(self, request, uuid):
        instance = queue.get(uuid)
        if queue.delete(instance, by=actor(request, PAGE), cancel=True):
            messages.success(request, f"{instance.uuid} is removed.", fail_silently=True)
            return redirect("atp:instances")
        told = "It is cancelled. Delete it again when its daemon has ended it."
        messages.info(request, told, fail_silently=True)
        return redirect("atp:instance", uuid=instance.uuid)
