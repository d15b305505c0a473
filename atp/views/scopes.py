"""The base of the pages of gates and limits: the choice of a scope, and a form for it."""

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue
from ..exceptions import ATPError
from ..models import Type
from ..reports import overview
from ..web import authorization, permissions
from ..web.problems import problem_of
from ..words import sentences
from ..words.options import MAX_IDENTIFIER
from .base import Page

# Log records below the form.
SHOWN = 10


class ScopeForm(forms.Form):
    """A form that chooses a scope: the whole Type, or one of its lanes."""

    of = forms.ChoiceField(
        label="For",
        required=False,
        choices=[("type", "the whole Type"), ("lane", "one collection of it")],
    )
    collection = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_IDENTIFIER,
        help_text="the name of the collection; empty stands for Instances without a collection",
    )

    def clean(self):
        given = super().clean()
        if given.get("of") == "type" and given.get("collection"):
            self.add_error(
                "collection", "This is a collection, and “For” says the whole Type: which is it?"
            )
        return given

    @property
    def chosen(self):
        """The chosen collection, None for the whole Type."""
        return self.cleaned_data["collection"] if self.cleaned_data["of"] == "lane" else None


class ScopePage(Page):
    """The base of a page with a form that shows and sets the gate or the limits of a scope.

    The scope is in the query string, and in hidden fields of the form.
    """

    permissions = (permissions.VIEW_TYPE, permissions.CONTROL)
    template_name = "atp/control.html"
    parameters = ("of", "collection")
    title = ""

    def form_of(self, scope, data=None):
        """Return the form of a scope, with ``data`` if given, else with the present settings."""
        raise NotImplementedError

    def perform(self, form, scope):
        """Call the verb; return a sentence about the outcome, or a page that asks to confirm."""
        raise NotImplementedError

    def state(self, scope):
        """Return the present gate or limits of a scope in words."""
        raise NotImplementedError

    def get(self, request, identifier=None):
        type = self._type(identifier)
        chooser = self._chooser(type, request.GET)
        if chooser is not None and not chooser.is_valid():
            return self.shown(None, type, chooser=chooser, status=422)
        scope = self._scope(identifier, chooser)
        authorization.require(request.user, scope, permissions.CONTROL)
        return self.shown(scope, type, form=self.form_of(scope), chooser=chooser)

    def post(self, request, identifier=None):
        type = self._type(identifier)
        # The scope is that of the hidden fields; without them, that of the query string.
        given = request.POST if {"of", "collection"} & request.POST.keys() else request.GET
        chooser = self._chooser(type, given)
        if chooser is not None and not chooser.is_valid():
            return self.shown(None, type, chooser=chooser, status=422)
        scope = self._scope(identifier, chooser)
        authorization.require(request.user, scope, permissions.CONTROL)
        form = self.form_of(scope, request.POST)
        if not form.is_valid():
            return self.shown(scope, type, form=form, chooser=chooser, status=422)
        try:
            done = self.perform(form, scope)
        except ATPError as error:
            form = self.form_after(error, form, scope)
            form.add_error(None, str(error))
            status = problem_of(error).status
            return self.shown(scope, type, form=form, chooser=chooser, status=status)
        if not isinstance(done, str):
            return done
        messages.success(request, done, fail_silently=True)
        return redirect(reverse("atp:type", args=[identifier]) if identifier else "atp:overview")

    def _type(self, identifier):
        """Return the Type of the address, if the user may see it; None for everything."""
        if identifier is None:
            return None
        user = self.request.user
        return authorization.look_up(
            user, lambda: queue.get_type(identifier), Type, identifier, permissions.VIEW_TYPE
        )

    def form_after(self, error, form, scope):
        """Return the form to show with the error; by default the same form."""
        return form

    def shown(self, scope, type, *, form=None, chooser=None, **context):
        """Answer with the page. If the scope is None, show only the form that chooses one."""
        user = self.request.user
        may_see_log = scope is not None and permissions.holds(user, permissions.VIEW_LOG, scope)
        return self.show(
            type=type,
            scope=scope,
            of=None if scope is None else sentences.where(*scope),
            state=None if scope is None else self.state(scope),
            hidden=hidden_fields(scope),
            form=form,
            chooser=chooser,
            title=self.title,
            now=overview.now(),
            log=queue.scope_log(*scope, limit=SHOWN) if may_see_log else None,
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
        return ScopeForm(given, auto_id="scope_%s")

    @staticmethod
    def _scope(identifier, chooser):
        return identifier, None if chooser is None else chooser.chosen


def hidden_fields(scope):
    """Return the hidden fields of a form that name its scope, as pairs of name and value."""
    if scope is None or scope[0] is None:
        return []
    return [("of", "type")] if scope[1] is None else [("of", "lane"), ("collection", scope[1])]
