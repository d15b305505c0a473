"""Forms from the table of verbs: a field for each parameter."""

from django import forms

from ..exceptions import InvalidInputs
from ..verbs.table.inputs import Inputs
from ..verbs.table.lines import Lines
from ..words.kinds import Choice, Flag, Number, Text, WholeNumber
from ..words.options import MAX_IDENTIFIER


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
