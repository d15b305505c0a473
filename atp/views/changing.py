"""Changing what waits from a page: a form, and a button that is that form filled in."""

from django import forms
from django.contrib import messages
from django.shortcuts import redirect

from .. import overview, queue, wording
from ..exceptions import ATPError, IllegalTransition
from ..options import MAX_IDENTIFIER, MAX_PRIORITY, MIN_PRIORITY
from ..states import State
from ..web import permissions
from ..web.actor import PAGE, actor
from ..web.problems import problem_of
from .base import Page
from .fields import MomentField


class ChangeForm(forms.Form):
    """What is as it was when the form was shown is not given: another may have changed it."""

    priority = forms.IntegerField(
        required=False,
        show_hidden_initial=True,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        help_text=f"from {MIN_PRIORITY} to {MAX_PRIORITY}, higher first",
    )
    collection = forms.CharField(
        required=False,
        show_hidden_initial=True,
        max_length=MAX_IDENTIFIER,
        help_text="label of a subset of the Type",
    )
    due = MomentField(
        required=False,
        label="Not before",
        help_text="2030-01-31T18:00, or a delay from now as 1h30m; empty: as it is",
    )

    def changes(self):
        """Return what was given, as ``queue.change`` takes it."""
        given = {name: self.cleaned_data[name] for name in self.changed_data}
        if "collection" not in self.data:
            given.pop("collection", None)
        return {name: value for name, value in given.items() if value is not None}


class ChangePage(Page):
    permissions = (permissions.VIEW_INSTANCE, permissions.OPERATE)
    template_name = "atp/change.html"
    fields = (*ChangeForm.base_fields, "initial-priority", "initial-collection")

    def get(self, request, uuid):
        instance = queue.get(uuid)
        if instance.state != State.ACCEPTED:
            raise IllegalTransition(
                f"{instance.uuid} cannot be changed: it is {wording.state(instance)}, "
                f"not {State.ACCEPTED}.",
                state=State(instance.state),
            )
        initial = {"priority": instance.priority, "collection": instance.collection}
        return self._form(instance, ChangeForm(initial=initial))

    def post(self, request, uuid):
        instance = queue.get(uuid)
        form = ChangeForm(request.POST)
        if not form.is_valid():
            return self._form(instance, form, status=422)
        changes = form.changes()
        if changes:
            try:
                queue.change(instance, **changes, by=actor(request, PAGE))
            except ATPError as error:
                form.add_error(None, str(error))
                return self._form(instance, form, status=problem_of(error).status)
        told = "It is changed." if changes else "Nothing was different."
        messages.success(request, told, fail_silently=True)
        return redirect("atp:instance", uuid=instance.uuid)

    def _form(self, instance, form, **context):
        return self.show(
            instance=instance,
            task=queue.task(instance),
            form=form,
            now=overview.now(),
            zone=wording.zone(),
            **context,
        )
