"""What a button on a daemon's page does: one order, by POST."""

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue
from ..modes import Order
from ..web import permissions
from ..web.actor import PAGE, actor
from .base import Page


class OrderPage(Page):
    """Tell the daemon to do this, and go back to it."""

    permissions = (permissions.VIEW_DAEMON, permissions.OPERATE)
    http_method_names = ("post", "options")

    def page_to_return_to(self):
        return reverse("atp:daemon", kwargs={"uuid": self.kwargs["uuid"]})

    def post(self, request, uuid, name):
        if name not in Order.values:
            raise Http404(f"There is no order {name!r}.")
        told = queue.command(uuid, name, by=actor(request, PAGE))
        words = f"It has been told to {Order(name).label}."
        messages.success(request, words, fail_silently=True)
        return redirect("atp:daemon", uuid=told.uuid)
