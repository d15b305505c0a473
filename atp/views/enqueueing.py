"""Enqueueing from a page: a form for each Type that this process declares."""

import contextlib
import inspect
import json
from datetime import timedelta

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.shortcuts import redirect

from .. import binding, codec, overview, queue
from ..exceptions import ATPError, CorruptData, DuplicateIdentifier, InvalidInputs, NotSerializable
from ..options import EXISTING, MAX_IDENTIFIER, MAX_PRIORITY, MIN_PRIORITY
from ..web import permissions
from ..web.actor import PAGE, actor
from ..web.problems import problem_of
from .base import Page
from .fields import MomentField

_OPTIONS = ("identifier", "existing", "priority", "collection", "run_after", "start_before")


class EnqueueForm(forms.Form):
    inputs = forms.CharField(
        label="Inputs",
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "autocapitalize": "off"}),
        help_text="JSON: an object of keyword arguments, or an array of positional ones",
    )
    identifier = forms.CharField(
        required=False, max_length=MAX_IDENTIFIER, help_text="idempotency key, unique in its Type"
    )
    existing = forms.ChoiceField(
        required=False,
        choices=[
            ("raise", "refuse"),
            ("return", "show that one"),
            ("redrive", "run it again if it failed"),
        ],
        label="If the identifier is taken",
    )
    priority = forms.IntegerField(
        required=False,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        help_text=f"from {MIN_PRIORITY} to {MAX_PRIORITY}, higher first",
    )
    collection = forms.CharField(
        required=False, max_length=MAX_IDENTIFIER, help_text="label of a subset of the Type"
    )
    run_after = MomentField(
        required=False, label="Not before", help_text="2030-01-31T18:00, or a delay as 1h30m"
    )
    start_before = MomentField(
        required=False, label="Start before", help_text="else it is FAILED, MISSED"
    )

    def clean_inputs(self):
        """Return ``(args, kwargs)``."""
        try:
            return binding.arguments(codec.from_plain(codec.parse(self.cleaned_data["inputs"])))
        except NotSerializable as error:
            raise forms.ValidationError(f"This is {error}.") from None
        except (CorruptData, InvalidInputs) as error:
            raise forms.ValidationError(str(error)) from None

    def options(self, now):
        """Return what was given of the options of an enqueue."""
        given = {name: self.cleaned_data[name] for name in _OPTIONS}
        given = {name: value for name, value in given.items() if value not in (None, "")}
        if "collection" in self.data:
            # The form begins with the Type's own: without it there is to be none.
            given["collection"] = self.cleaned_data["collection"]
        if isinstance(given.get("start_before"), timedelta):
            given["start_before"] = now() + given["start_before"]
        return given


class EnqueuePage(Page):
    permissions = (permissions.VIEW_TYPE, permissions.OPERATE)
    template_name = "atp/enqueue.html"
    parameters = ("like",)
    fields = tuple(EnqueueForm.base_fields)

    def get(self, request, identifier):
        declared = queue.declared(identifier)
        return self._form(declared, EnqueueForm(initial=self._initial(declared)))

    def post(self, request, identifier):
        declared = queue.declared(identifier)
        form = EnqueueForm(request.POST)
        if not form.is_valid():
            return self._form(declared, form, status=422)
        args, kwargs = form.cleaned_data["inputs"]
        try:
            options = form.options(overview.now)
            instance = declared.using(created_by=actor(request, PAGE), **options).enqueue(
                *args, **kwargs
            )
        except ATPError as error:
            form.add_error("inputs" if isinstance(error, InvalidInputs) else None, str(error))
            taken = error.instance if isinstance(error, DuplicateIdentifier) else None
            return self._form(declared, form, status=problem_of(error).status, taken=taken)
        told = "Enqueued." if instance.is_new else "This one had been enqueued before."
        messages.success(request, told, fail_silently=True)
        return redirect("atp:instance", uuid=instance.uuid)

    def _form(self, declared, form, **context):
        signature = f"{declared.identifier}{declared.signature}"
        explanation = inspect.getdoc(declared.handler)
        return self.show(
            declared=declared, form=form, signature=signature, explanation=explanation, **context
        )

    def _initial(self, declared):
        """What the form begins with: the options and inputs of another Instance, or a sketch."""
        like = self.request.GET.get("like")
        if like is None:
            return {
                "inputs": _as_json(_sketch(declared.signature)),
                "existing": EXISTING[0],
                "priority": declared.options.priority,
                "collection": declared.options.collection,
            }
        self.check_permissions(permissions.VIEW_INSTANCE, permissions.VIEW_INPUTS)
        other = queue.get(like)
        if other.type.identifier != declared.identifier:
            raise BadRequest(f"{other.uuid} is of Type {other.type}, not {declared}.")
        return {
            "inputs": _stored(other),
            "existing": EXISTING[0],
            "priority": other.priority,
            "collection": other.collection,
        }


def _stored(instance):
    inputs = queue.inputs(instance)
    if inputs is not None and inputs.format == codec.JSON:
        with contextlib.suppress(ValueError, RecursionError):
            return _as_json(json.loads(inputs.data))
    raise BadRequest(f"The inputs of {instance.uuid} are no JSON: they cannot be given again.")


def _sketch(signature):
    """Return the arguments that have a default, each with that."""
    sketch = {}
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty:
            with contextlib.suppress(NotSerializable):
                sketch[name] = json.loads(codec.to_json(parameter.default))
    return sketch


def _as_json(value):
    return json.dumps(value, indent=2, ensure_ascii=False)
