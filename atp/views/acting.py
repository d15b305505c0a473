"""What a button on an Instance's page does: one Action, by POST."""

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue
from ..web import permissions
from ..web.actions import ACTIONS
from ..web.actor import PAGE, actor
from .base import Page


class ActionPage(Page):
    """Perform the Action of this name, and go back to the Instance."""

    permissions = (permissions.VIEW_INSTANCE, permissions.OPERATE)
    http_method_names = ("post", "options")

    def page_to_return_to(self):
        return reverse("atp:instance", kwargs={"uuid": self.kwargs["uuid"]})

    def post(self, request, uuid, name):
        if name not in ACTIONS:
            raise Http404(f"There is no action {name!r}.")
        action = ACTIONS[name]
        instance = queue.get(uuid)
        told = action.perform(instance, by=actor(request, PAGE))
        messages.success(request, told, fail_silently=True)
        return redirect("atp:instance", uuid=instance.uuid)
