"""What the pages of gates and limits share: which place they are of, and a form for it."""

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.shortcuts import redirect
from django.urls import reverse

from .. import overview, queue, told
from ..exceptions import ATPError
from ..options import MAX_IDENTIFIER
from ..web import permissions
from ..web.problems import problem_of
from .base import Page

# Records of the log below a form.
SHOWN = 10


class PlaceForm(forms.Form):
    """The whole Type, or one of its lanes."""

    of = forms.ChoiceField(
        label="Of",
        required=False,
        choices=[("type", "the whole Type"), ("lane", "one collection of it")],
    )
    collection = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_IDENTIFIER,
        help_text="which, if it is one; empty is that of Instances without any",
    )

    def clean(self):
        given = super().clean()
        if given.get("of") == "type" and given.get("collection"):
            self.add_error(
                "collection", "This is a collection, and “Of” says the whole Type: which is it?"
            )
        return given

    @property
    def chosen(self):
        """The collection, None if it is the whole Type."""
        return self.cleaned_data["collection"] if self.cleaned_data["of"] == "lane" else None


class PlacePage(Page):
    """A form that shows how a place is, and sets it.

    The place stands in the query, and in hidden fields of the form.
    """

    permissions = (permissions.VIEW_TYPE, permissions.OPERATE)
    template_name = "atp/control.html"
    parameters = ("of", "collection")
    title = ""

    def form_of(self, place, data=None):
        """Return the form of a place, a pair, as that is or with what was given."""
        raise NotImplementedError

    def perform(self, form, place):
        """Call the verb; returns what is told of it, or a page that asks once more."""
        raise NotImplementedError

    def state(self, place):
        """What is there now, in words."""
        raise NotImplementedError

    def get(self, request, identifier=None):
        type = None if identifier is None else queue.get_type(identifier)
        chooser = self._chooser(type, request.GET)
        if chooser is not None and not chooser.is_valid():
            return self.shown(None, type, chooser=chooser, status=422)
        place = self._place(identifier, chooser)
        return self.shown(place, type, form=self.form_of(place), chooser=chooser)

    def post(self, request, identifier=None):
        type = None if identifier is None else queue.get_type(identifier)
        # The form itself says which place; without, it is that of the query.
        given = request.POST if {"of", "collection"} & request.POST.keys() else request.GET
        chooser = self._chooser(type, given)
        if chooser is not None and not chooser.is_valid():
            return self.shown(None, type, chooser=chooser, status=422)
        place = self._place(identifier, chooser)
        form = self.form_of(place, request.POST)
        if not form.is_valid():
            return self.shown(place, type, form=form, chooser=chooser, status=422)
        try:
            done = self.perform(form, place)
        except ATPError as error:
            form = self.form_after(error, form, place)
            form.add_error(None, str(error))
            status = problem_of(error).status
            return self.shown(place, type, form=form, chooser=chooser, status=status)
        if not isinstance(done, str):
            return done
        messages.success(request, done, fail_silently=True)
        return redirect(reverse("atp:type", args=[identifier]) if identifier else "atp:overview")

    def form_after(self, error, form, place):
        """The form that is shown with what is wrong; by default the same."""
        return form

    def shown(self, place, type, *, form=None, chooser=None, **context):
        """Answer with the page; without a place, only with what chooses one."""
        may_see_log = place is not None and self.may(permissions.VIEW_LOG)
        return self.show(
            type=type,
            place=place,
            of=None if place is None else told.where(*place),
            state=None if place is None else self.state(place),
            hidden=hidden_fields(place),
            form=form,
            chooser=chooser,
            title=self.title,
            now=overview.now(),
            log=queue.place_log(*place, limit=SHOWN) if may_see_log else None,
            **context,
        )

    @staticmethod
    def _chooser(type, data):
        given = {name: data[name] for name in ("of", "collection") if name in data}
        if type is None:
            if given:
                raise BadRequest("Everything has no collections: choose a Type first.")
            return None
        if "of" not in given:
            given["of"] = "lane" if "collection" in given else "type"
        return PlaceForm(given, auto_id="place_%s")

    @staticmethod
    def _place(identifier, chooser):
        return identifier, None if chooser is None else chooser.chosen


def hidden_fields(place):
    """The fields of a form that say which place it is of."""
    if place is None or place[0] is None:
        return []
    return [("of", "type")] if place[1] is None else [("of", "lane"), ("collection", place[1])]
