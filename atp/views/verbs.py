"""The pages of verbs: a POST performs a verb; a GET shows its form, or asks to confirm it."""

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect
from django.template.loader import select_template
from django.urls import reverse

from .. import queue
from ..exceptions import ATPError, IllegalTransition
from ..models import Daemon, Downstream, Graph, Instance, Type
from ..reports import overview
from ..states import State
from ..verbs.table import DAEMON, DOWNSTREAM, GRAPH, INSTANCE, SCOPE, VERBS
from ..verbs.table.scopes import level
from ..web import authorization, permissions
from ..web.actor import PAGE, actor
from ..web.forms import form_of, names_in, tell
from ..web.problems import problem_of
from ..words import sentences, wording
from .base import Page

# An Instance that has ended, as a page has shown it.
_ENDED = "ended"


class VerbPage(Page):
    """The base of a verb's page: POST performs the verb, and redirects to its subject.

    Some verbs need more than a button. GET shows a form of their parameters, or asks for
    confirmation if the verb cannot be undone.
    """

    kind = None
    # The model of its subjects, and the word of the address that names one.
    model = None
    key = "uuid"
    view_permission = None

    def find(self):
        """Return the subject that the address names. Raises ATPError."""
        raise NotImplementedError

    def check_allowed(self, subject):
        """Raise the error of the verb, before its form is shown, if the verb is not allowed."""

    def setup(self, request, *args, **kwargs):
        super().setup(request, *args, **kwargs)
        found = VERBS[self.kind].get(kwargs["name"])
        if found is None or not found.has_page:
            self.http_method_names = ("post", "options")

    @property
    def verb(self):
        """The verb that the address names. Raises Http404."""
        found = VERBS[self.kind].get(self.kwargs["name"])
        if found is None:
            raise Http404(f"There is no verb {self.kwargs['name']!r}.")
        return found

    @property
    def permissions(self):
        return (self.view_permission, *self.verb.needs)

    @property
    def fields(self):
        return ("sure", "shown", *names_in(form_of(self.verb.parameters)))

    def shown(self, subject):
        """Return text that a form brings back: what its page has shown of the subject."""
        return ""

    def hidden(self, subject):
        """Return the hidden fields of the form, as pairs of name and value."""
        shown = self.shown(subject)
        return [("shown", shown)] if shown else []

    def check_shown(self, subject, shown):
        """Raise ATPError if the subject is not as the page has shown it, when that matters."""

    def get(self, request, **kwargs):
        subject = self._subject()
        self.check_allowed(subject)
        form = form_of(self.verb.parameters)(initial=self.current(subject))
        return self._page(subject, form)

    def post(self, request, **kwargs):
        verb, subject = self.verb, self._subject()
        form = form_of(verb.parameters)(request.POST)
        if not form.is_valid():
            return self._page(subject, form, status=422)
        try:
            self.check_shown(subject, request.POST.get("shown", ""))
        except ATPError as error:
            form.add_error(None, str(error))
            return self._page(subject, form, status=problem_of(error).status)
        if verb.asks_first(subject) and not verb.has_page and "sure" not in request.POST:
            return self._page(subject, form, is_sure=True)
        try:
            given = self.given(form)
            authorization.require_operation(request.user, verb, subject, given)
            outcome = verb.perform(subject, actor(request, PAGE), **given)
        except ATPError as error:
            if not verb.parameters:
                raise
            tell(form, error)
            return self._page(subject, form, status=problem_of(error).status)
        messages.success(request, outcome.told, fail_silently=True)
        return redirect(self.after(subject))

    def current(self, subject):
        """Return the initial values of the form."""
        return self.verb.current(subject)

    def given(self, form):
        """Return the arguments of the verb from its form."""
        return form.given()

    def after(self, subject):
        """Return the address to redirect to after the verb."""
        return self.page_to_return_to()

    def _subject(self):
        name = self.kwargs.get(self.key)
        if name is None:  # everything
            self.subject = self.find()
        else:
            self.look_up(self.model, name, self.find)
        self.check_permissions(*self.verb.permissions(self.subject))
        authorization.require_operation(self.request.user, self.verb, self.subject, {})
        return self.subject

    def _page(self, subject, form, *, is_sure=False, **context):
        template = select_template(
            [f"atp/verbs/{self.kind}/{self.verb.name}.html", "atp/verb.html"]
        )
        return self.show(
            template=template.template.name,
            verb=self.verb,
            subject=subject,
            name=self.name_of(subject),
            form=form,
            hidden=[*self.hidden(subject), *([("sure", "yes")] if is_sure else [])],
            back=self.page_to_return_to(),
            now=overview.now(),
            **context,
        )

    def name_of(self, subject):
        """Return the name of the subject, for the heading."""
        return str(subject)


class InstanceVerbPage(VerbPage):
    kind = INSTANCE
    model = Instance
    view_permission = permissions.VIEW_INSTANCE

    def find(self):
        return queue.get(self.kwargs["uuid"])

    def check_allowed(self, subject):
        if not self.verb.is_allowed(subject):
            raise IllegalTransition(
                f"{subject.uuid}: “{self.verb.label}” is not possible. It is "
                f"{wording.state(subject)}.",
                event=self.verb.event,
                state=State(subject.state),
            )

    def shown(self, subject):
        return _ENDED if subject.is_terminal else ""

    def check_shown(self, subject, shown):
        if self.verb.is_final and shown == _ENDED and not subject.is_terminal:
            raise IllegalTransition(
                f"{subject.uuid} had ended, and somebody has redriven it since: look again.",
                event=self.verb.event,
                state=State(subject.state),
            )

    def page_to_return_to(self):
        return reverse("atp:instance", kwargs={"uuid": self.kwargs["uuid"]})

    def after(self, subject):
        is_there = Instance.objects.using(subject._state.db).filter(pk=subject.pk).exists()
        return self.page_to_return_to() if is_there else reverse("atp:instances")

    def name_of(self, subject):
        return f"{subject.type} {subject.uuid}"

    def show(self, *, subject=None, **context):
        task = None if subject is None else queue.task(subject)
        return super().show(subject=subject, task=task, **context)


class DaemonVerbPage(VerbPage):
    kind = DAEMON
    model = Daemon
    view_permission = permissions.VIEW_DAEMON

    def find(self):
        return queue.get_daemon(self.kwargs["uuid"])

    def page_to_return_to(self):
        return reverse("atp:daemon", kwargs={"uuid": self.kwargs["uuid"]})

    def name_of(self, subject):
        return f"daemon {subject}"


class DownstreamVerbPage(VerbPage):
    kind = DOWNSTREAM
    model = Downstream
    key = "downstream"
    view_permission = permissions.VIEW_DOWNSTREAM

    def find(self):
        return queue.get_downstream(self.kwargs["downstream"])

    def page_to_return_to(self):
        return reverse("atp:downstream", args=[self.kwargs["downstream"]])

    def name_of(self, subject):
        return f"downstream {subject}"


class GraphVerbPage(VerbPage):
    kind = GRAPH
    model = Graph
    view_permission = permissions.VIEW_GRAPH

    def find(self):
        return queue.get_graph(self.kwargs["uuid"])

    def page_to_return_to(self):
        return reverse("atp:graph", kwargs={"uuid": self.kwargs["uuid"]})

    def name_of(self, subject):
        return f"graph {subject}"


class ScopeVerbPage(VerbPage):
    """The page of a verb on a scope: a Type, everything, or a lane if the query names one."""

    kind = SCOPE
    model = Type
    key = "identifier"
    view_permission = permissions.VIEW_TYPE
    parameters = ("collection",)

    def find(self):
        identifier = self.kwargs.get("identifier")
        if identifier is not None:
            queue.get_type(identifier)
        scope = identifier, self.request.GET.get("collection")
        if level(scope) not in self.verb.levels:
            raise Http404(f"“{self.verb.label}” is not for {sentences.where(*scope)}.")
        return scope

    def page_to_return_to(self):
        identifier = self.kwargs.get("identifier")
        return reverse("atp:type", args=[identifier]) if identifier else reverse("atp:overview")

    def name_of(self, subject):
        return sentences.where(*subject)
