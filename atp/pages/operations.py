"""A page for each operation in the table of operations.

A POST to the page performs the operation, and a GET shows the operation's form.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.loader import select_template
from django.urls import reverse
from django.utils.functional import cached_property

from .. import queue, text
from ..exceptions import ATPError, IllegalTransition, InvalidInputs
from ..models import Daemon, Downstream, Graph, Instance, Type
from ..operations.operation import (
    Choice,
    Flag,
    Inputs,
    Kind,
    Lines,
    Number,
    Parameter,
    Text,
    WholeNumber,
)
from ..operations.table import DAEMON, DOWNSTREAM, GRAPH, INSTANCE, OPERATIONS, TARGET, level_of
from ..options import MAX_IDENTIFIER
from ..reports import health, overview
from ..states import State
from ..web import permissions
from ..web.permissions import PAGE, Place, actor
from ..web.problems import status_of
from .base import Page

# In the field "shown" of a form: the Instance had ended when the page was shown.
_ENDED = "ended"


class OperationPage(Page):
    """The base class of a page for an operation.

    POST performs the operation and redirects to its subject. If an operation needs more than a
    button, GET shows a form for its parameters, or asks the user to confirm an operation that
    cannot be undone.
    """

    kind: str
    # The model of the subjects, and the name of the URL parameter that identifies one.
    model: type[Model]
    key = "uuid"
    view_permission: str

    def find(self) -> Any:
        """Return the operation's subject, which the address names. Raises ATPError if unknown."""
        raise NotImplementedError

    def check_allowed(self, subject: Any) -> None:
        """Raise an ATPError before the form is shown if the operation is not allowed now."""

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        found = OPERATIONS[self.kind].get(kwargs["name"])
        if found is None or not found.has_page:
            self.http_method_names = ("post", "options")

    @property
    def verb(self) -> Any:
        """The operation that the address names. Raises Http404 if there is none."""
        found = OPERATIONS[self.kind].get(self.kwargs["name"])
        if found is None:
            raise Http404(f"There is no operation {self.kwargs['name']!r}.")
        return found

    @cached_property
    def now(self) -> datetime:
        """The time of the queue's clock when the page is shown."""
        return overview.now()

    @property
    def permissions(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.view_permission, *self.verb.needs)

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("sure", "shown", *field_names(make_form_class(self.verb.parameters)))

    def shown_state(self, subject: Any) -> str:
        """Return a word for the subject's state on the page, which the form sends back."""
        return ""

    def hidden_fields(self, subject: Any) -> list[tuple[str, Any]]:
        """Return the hidden fields of the form, as pairs of name and value."""
        shown = self.shown_state(subject)
        return [("shown", shown)] if shown else []

    def check_shown_state(self, subject: Any, shown: str) -> None:
        """Raise ATPError if the operation must not run because the subject has changed.

        ``shown`` is the subject's state when the page was shown; see :meth:`shown_state`.
        """

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        subject = self._find_subject()
        self.check_allowed(subject)
        form = make_form_class(self.verb.parameters)(initial=self.initial_values(subject))
        return self._show_form(subject, form)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        verb, subject = self.verb, self._find_subject()
        form = make_form_class(verb.parameters)(request.POST)
        if not form.is_valid():
            return self._show_form(subject, form, status=422)
        try:
            self.check_shown_state(subject, request.POST.get("shown", ""))
        except ATPError as error:
            form.add_error(None, str(error))
            return self._show_form(subject, form, status=status_of(error))
        if verb.asks_first(subject) and not verb.has_page and "sure" not in request.POST:
            return self._show_form(subject, form, is_sure=True)
        try:
            arguments = self.arguments(form)
            permissions.require_operation(request.user, verb, subject, arguments)
            outcome = verb.perform(subject, actor(request, PAGE), **arguments)
        except ATPError as error:
            if not verb.parameters:
                raise
            add_operation_error(form, error)
            return self._show_form(subject, form, status=status_of(error))
        messages.success(request, outcome.told, fail_silently=True)
        return redirect(self.address_after(subject))

    def initial_values(self, subject: Any) -> dict[str, Any]:
        """Return the form's initial values for the operation's parameters."""
        return self.verb.current(subject)

    def arguments(self, form: "KindForm") -> dict[str, Any]:
        """Return the operation's arguments from its form."""
        return form.changed_values()

    def address_after(self, subject: Any) -> str:
        """Return the address to redirect to after the operation."""
        return self.page_to_return_to()

    def _find_subject(self) -> Any:
        name = self.kwargs.get(self.key)
        if name is None:  # everything
            self.subject = self.find()
        else:
            self.look_up(self.model, name, self.find)
        self.check_permissions(*self.verb.permissions(self.subject))
        permissions.require_operation(self.request.user, self.verb, self.subject, {})
        return self.subject

    def _show_form(
        self, subject: Any, form: forms.Form, *, is_sure: bool = False, **context: Any
    ) -> HttpResponseBase:
        template = select_template(
            [f"atp/operations/{self.kind}/{self.verb.name}.html", "atp/verb.html"]
        )
        return self.show(
            template=template.template.name,
            verb=self.verb,
            subject=subject,
            name=self.heading(subject),
            form=form,
            hidden=[*self.hidden_fields(subject), *([("sure", "yes")] if is_sure else [])],
            back=self.page_to_return_to(),
            now=self.now,
            **context,
        )

    def heading(self, subject: Any) -> str:
        """Return the subject's name for the page's heading."""
        return str(subject)


class InstanceOperationPage(OperationPage):
    kind = INSTANCE
    model = Instance
    view_permission = permissions.VIEW_INSTANCE

    def find(self) -> Instance:
        return queue.get(self.kwargs["uuid"])

    def check_allowed(self, subject: Instance) -> None:
        if not self.verb.is_allowed(subject):
            raise IllegalTransition(
                f"“{self.verb.label}” is not possible, because {subject.uuid} is "
                f"{text.describe_state(subject)}.",
                event=self.verb.event,
                state=State(subject.state),
            )

    def shown_state(self, subject: Instance) -> str:
        return _ENDED if subject.is_terminal else ""

    def check_shown_state(self, subject: Instance, shown: str) -> None:
        if self.verb.is_final and shown == _ENDED and not subject.is_terminal:
            raise IllegalTransition(
                f"{subject.uuid} had ended, but somebody has redriven it since. Reload the page.",
                event=self.verb.event,
                state=State(subject.state),
            )

    def page_to_return_to(self) -> str:
        return reverse("atp:instance", kwargs={"uuid": self.kwargs["uuid"]})

    def address_after(self, subject: Instance) -> str:
        is_kept = Instance.objects.using(subject._state.db).filter(pk=subject.pk).exists()
        return self.page_to_return_to() if is_kept else reverse("atp:instances")

    def heading(self, subject: Instance) -> str:
        return f"{subject.type} {subject.uuid}"

    def show(self, *, subject: Instance | None = None, **context: Any) -> HttpResponse:
        task = None if subject is None else queue.task(subject)
        return super().show(subject=subject, task=task, **context)


class DaemonOperationPage(OperationPage):
    kind = DAEMON
    model = Daemon
    view_permission = permissions.VIEW_DAEMON

    def find(self) -> Daemon:
        return queue.get_daemon(self.kwargs["uuid"])

    def page_to_return_to(self) -> str:
        return reverse("atp:daemon", kwargs={"uuid": self.kwargs["uuid"]})

    def heading(self, subject: Daemon) -> str:
        return f"daemon {subject}"


class DownstreamOperationPage(OperationPage):
    kind = DOWNSTREAM
    model = Downstream
    key = "downstream"
    view_permission = permissions.VIEW_DOWNSTREAM

    def find(self) -> Downstream:
        return queue.get_downstream(self.kwargs["downstream"])

    def page_to_return_to(self) -> str:
        return reverse("atp:downstream", args=[self.kwargs["downstream"]])

    def heading(self, subject: Downstream) -> str:
        return f"downstream {subject}"


class GraphOperationPage(OperationPage):
    kind = GRAPH
    model = Graph
    view_permission = permissions.VIEW_GRAPH

    def find(self) -> Graph:
        return queue.get_graph(self.kwargs["uuid"])

    def page_to_return_to(self) -> str:
        return reverse("atp:graph", kwargs={"uuid": self.kwargs["uuid"]})

    def heading(self, subject: Graph) -> str:
        return f"graph {subject}"


class TargetOperationPage(OperationPage):
    """The page for an operation on a target: everything, a Type, or a lane in the query string."""

    kind = TARGET
    model = Type
    key = "identifier"
    view_permission = permissions.VIEW_TYPE

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """A lane, and initial values for the form."""
        return ("collection", *(each.name for each in self.verb.parameters))

    def initial_values(self, subject: Place) -> dict[str, Any]:
        names = {each.name for each in self.verb.parameters} & self.request.GET.keys()
        return super().initial_values(subject) | {name: self.request.GET[name] for name in names}

    def find(self) -> Place:
        identifier = self.kwargs.get("identifier")
        if identifier is not None:
            queue.get_type(identifier)
        target = identifier, self.request.GET.get("collection")
        if level_of(target) not in self.verb.levels:
            raise Http404(
                f"“{self.verb.label}” is not possible for {text.describe_target(*target)}."
            )
        return target

    def page_to_return_to(self) -> str:
        identifier = self.kwargs.get("identifier")
        return reverse("atp:type", args=[identifier]) if identifier else reverse("atp:overview")

    def heading(self, subject: Place) -> str:
        return text.describe_target(*subject)


class EndSessionPage(TargetOperationPage):
    """The page that ends a session of the database: it says which sessions delay others."""

    def heading(self, subject: Place) -> str:
        pid = self.request.GET.get("pid")
        return f"process {pid}" if pid else "of the database"

    def show(self, **context: Any) -> HttpResponse:
        return super().show(sessions=health.blocking_sessions(self.now), **context)


# Forms from the table of operations: a field for each parameter.


class KindField(forms.CharField):
    """A form field whose text a Kind parses. An empty field means None, except for Text."""

    def __init__(
        self, kind: Kind, *, required: bool = False, help_text: str = "", **kwargs: Any
    ) -> None:
        self._kind = kind
        help_text = "; ".join(filter(None, [help_text.rstrip("."), kind.hint]))
        kwargs.setdefault("widget", _make_widget(kind))
        super().__init__(required=required, strip=False, help_text=help_text, **kwargs)

    def to_python(self, value: Any) -> Any:
        # A browser sends line ends as CRLF, which is not a change by the user.
        typed = super().to_python(value)
        return typed.replace("\r\n", "\n") if typed and isinstance(self._kind, Lines) else typed

    def clean(self, value: Any) -> Any:
        typed = super().clean(value)
        if not typed and not isinstance(self._kind, Text):
            return None
        try:
            return self._kind.from_text(typed)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


class KindForm(forms.Form):
    """A form that returns only the values that its user changed.

    So it does not overwrite other values that other users may have changed meanwhile.
    """

    parameters: tuple[Parameter, ...] = ()

    def changed_values(self) -> dict[str, Any]:
        """Return the changed and the required values by name, as arguments for the operation."""
        found = {}
        for parameter in self.parameters:
            name = parameter.name
            if name in self.data and (parameter.is_required or name in self.changed_data):
                value = self.cleaned_data[name]
                if value is not None or parameter.can_be_none:
                    found[name] = value
        return found


def make_field(parameter: Parameter, **kwargs: Any) -> KindField:
    """Return the form field for an operation's parameter."""
    return KindField(
        parameter.kind,
        required=parameter.is_required,
        label=parameter.label or None,
        help_text=parameter.help,
        show_hidden_initial=True,
        **kwargs,
    )


def make_form_class(parameters: Iterable[Parameter]) -> type[KindForm]:
    """Return the class of the form for an operation's parameters."""
    shown = tuple(parameter for parameter in parameters if parameter.in_forms)
    fields = {parameter.name: make_field(parameter) for parameter in shown}
    return type("OperationForm", (KindForm,), {**fields, "parameters": shown})


def add_operation_error(form: forms.Form, error: ATPError) -> None:
    """Add an operation's error to the field that the error names, or else to the whole form."""
    field = "inputs" if isinstance(error, InvalidInputs) else getattr(error, "parameter", None)
    form.add_error(field if field in form.fields else None, str(error))


def field_names(form: type[forms.Form]) -> tuple[str, ...]:
    """Return the names of a form's fields, and of the hidden fields with initial values."""
    return (*form.base_fields, *(f"initial-{name}" for name in form.base_fields))


def _make_widget(kind: Kind) -> forms.Widget:
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
