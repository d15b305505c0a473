"""A POST performs an operation, a GET shows its form: made from the table."""

from django import forms
from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect
from django.template.loader import select_template
from django.urls import reverse

from .. import queue, text
from ..exceptions import ATPError, IllegalTransition, InvalidInputs
from ..models import Daemon, Downstream, Graph, Instance, Type
from ..operations.operation import Choice, Flag, Inputs, Lines, Number, Text, WholeNumber
from ..operations.table import DAEMON, DOWNSTREAM, GRAPH, INSTANCE, SCOPE, VERBS, level
from ..options import MAX_IDENTIFIER
from ..reports import overview
from ..states import State
from ..web import permissions
from ..web.permissions import PAGE, actor
from ..web.problems import problem_of
from .base import Page

# The pages of verbs: a POST performs a verb; a GET shows its form, or asks to confirm it.

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
            permissions.require_operation(request.user, verb, subject, given)
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
        permissions.require_operation(self.request.user, self.verb, self.subject, {})
        return self.subject

    def _page(self, subject, form, *, is_sure=False, **context):
        template = select_template(
            [f"atp/operations/{self.kind}/{self.verb.name}.html", "atp/verb.html"]
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
                f"{text.state(subject)}.",
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
            raise Http404(f"“{self.verb.label}” is not for {text.where(*scope)}.")
        return scope

    def page_to_return_to(self):
        identifier = self.kwargs.get("identifier")
        return reverse("atp:type", args=[identifier]) if identifier else reverse("atp:overview")

    def name_of(self, subject):
        return text.where(*subject)


# Forms from the table of verbs: a field for each parameter.


class KindField(forms.CharField):
    """A form field whose text a Kind reads. Empty means None, except for the kind Text."""

    def __init__(self, kind, *, required=False, help_text="", **kwargs):
        self._kind = kind
        told = "; ".join(filter(None, [help_text.rstrip("."), kind.hint]))
        kwargs.setdefault("widget", _widget(kind))
        super().__init__(required=required, strip=False, help_text=told, **kwargs)

    def to_python(self, value):
        # A browser sends the ends of lines as CRLF: they are no change.
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(self._kind, Lines) else text

    def clean(self, value):
        text = super().clean(value)
        if not text and not isinstance(self._kind, Text):
            return None
        try:
            return self._kind.from_text(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


class KindForm(forms.Form):
    """A form that gives only changed values: another user may have changed the others meanwhile."""

    parameters = ()

    def given(self):
        """Return the changed values, by name: the arguments of the verb."""
        found = {}
        for parameter in self.parameters:
            name = parameter.name
            if name in self.changed_data and name in self.data:
                value = self.cleaned_data[name]
                if value is not None or parameter.can_be_none:
                    found[name] = value
        return found


def field_of(parameter, **kwargs):
    """Return the form field for a parameter of a verb."""
    return KindField(
        parameter.kind,
        required=parameter.is_required,
        label=parameter.label or None,
        help_text=parameter.help,
        show_hidden_initial=True,
        **kwargs,
    )


def form_of(parameters):
    """Return the form class for the parameters of a verb."""
    shown = tuple(parameter for parameter in parameters if parameter.in_forms)
    fields = {parameter.name: field_of(parameter) for parameter in shown}
    return type("VerbForm", (KindForm,), {**fields, "parameters": shown})


def tell(form, error):
    """Add a verb's error to a form: at the field that it names, else to the whole form."""
    field = "inputs" if isinstance(error, InvalidInputs) else getattr(error, "parameter", None)
    form.add_error(field if field in form.fields else None, str(error))


def names_in(form):
    """Return the names that a form sends: those of its fields and of their initial values."""
    return (*form.base_fields, *(f"initial-{name}" for name in form.base_fields))


def _widget(kind):
    if isinstance(kind, (WholeNumber, Number)):
        step = "any" if isinstance(kind, Number) else 1
        return forms.NumberInput({"min": kind.least, "max": kind.most, "step": step})
    if isinstance(kind, Choice):
        return forms.Select(choices=[("", ""), *((word, word) for word in kind.words)])
    if isinstance(kind, Lines):
        return forms.Textarea({"rows": 6, "maxlength": kind.most})
    if isinstance(kind, Inputs):
        return forms.Textarea({"rows": 4, "spellcheck": "false", "autocapitalize": "off"})
    if isinstance(kind, Flag):
        return forms.CheckboxInput({"value": "true"})
    return forms.TextInput({"maxlength": MAX_IDENTIFIER} if isinstance(kind, Text) else {})
