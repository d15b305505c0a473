"""The page to enqueue an Instance: a form for each Type that this process declares."""

import contextlib
import inspect
import json
import math
from datetime import timedelta

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.shortcuts import redirect

from .. import contracts, queue
from ..exceptions import (
    ATPError,
    CorruptData,
    DuplicateIdentifier,
    InvalidInputs,
    NotSerializable,
)
from ..models import Instance
from ..payload import binding, codec, tagged_json
from ..reports import documents, overview
from ..web import authorization, permissions
from ..web.actor import PAGE, actor
from ..web.enqueueing import enqueue, require_enqueue
from ..web.forms import KindField
from ..web.problems import problem_of
from ..words.kinds import PRIORITY, RETRIES, TIMEOUT, Moment, Text
from ..words.options import EXISTING, MAX_IDENTIFIER
from .base import Page

_OPTIONS = (
    *("identifier", "existing", "priority", "collection", "run_after", "start_before"),
    *("timeout", "max_retries", "unique"),
)


class EnqueueForm(forms.Form):
    inputs = forms.CharField(
        label="Inputs",
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "autocapitalize": "off"}),
        help_text="JSON: an object of keyword arguments, or an array of positional ones",
    )
    identifier = forms.CharField(
        required=False, max_length=MAX_IDENTIFIER, help_text="idempotency key, unique in its Type"
    )
    unique = forms.CharField(
        required=False,
        max_length=MAX_IDENTIFIER,
        label="Unique key",
        help_text="of one live Instance of its Type",
    )
    existing = forms.ChoiceField(
        required=False,
        choices=[
            ("raise", "refuse"),
            ("return", "show that one"),
            ("redrive", "identifier: run it again if it failed"),
            ("replace", "unique key: replace the inputs of what waits"),
            ("debounce", "unique key: move what waits to “not before”"),
        ],
        label="If one of these is taken",
    )
    priority = KindField(PRIORITY)
    collection = KindField(Text(), help_text="label of a subset of the Type")
    run_after = KindField(Moment(), label="Not before")
    start_before = KindField(Moment(), label="Start before", help_text="otherwise FAILED (MISSED)")
    timeout = KindField(TIMEOUT, label="Time-out", help_text="empty: that of the Type")
    max_retries = KindField(RETRIES, label="Retries", help_text="empty: those of the Type")

    def clean_inputs(self):
        """Parse the inputs and return ``(args, kwargs)``."""
        try:
            return binding.arguments(
                tagged_json.from_plain(tagged_json.parse(self.cleaned_data["inputs"]))
            )
        except NotSerializable as error:
            raise forms.ValidationError(f"This is {error}.") from None
        except (CorruptData, InvalidInputs) as error:
            raise forms.ValidationError(str(error)) from None

    def options(self, now):
        """Return the options of the enqueue that are filled in."""
        given = {name: self.cleaned_data[name] for name in _OPTIONS}
        given = {name: value for name, value in given.items() if value not in (None, "")}
        if "collection" in self.data:
            # The form starts with the Type's collection: if emptied, it means no collection.
            given["collection"] = self.cleaned_data["collection"]
        if isinstance(given.get("start_before"), timedelta):
            given["start_before"] = now() + given["start_before"]
        return given


class EnqueuePage(Page):
    permissions = (permissions.ENQUEUE,)
    template_name = "atp/enqueue.html"
    parameters = ("like",)
    fields = tuple(EnqueueForm.base_fields)

    def get(self, request, identifier):
        self.check_touched(identifier, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        return self._form(declared, EnqueueForm(initial=self._initial(declared)))

    def post(self, request, identifier):
        self.check_touched(identifier, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        form = EnqueueForm(request.POST)
        if not form.is_valid():
            return self._form(declared, form, status=422)
        args, kwargs = form.cleaned_data["inputs"]
        try:
            options = form.options(overview.now)
            called = declared.using(created_by=actor(request, PAGE), **options)
            require_enqueue(request.user, [called])
            contracts.require(declared, args, kwargs)
            call = queue.Call(task_type=called, args=args, kwargs=kwargs)
            [instance] = enqueue(request.user, [call])
        except ATPError as error:
            if isinstance(error, InvalidInputs):
                form.add_error("inputs", [_told(*each) for each in error.problems] or str(error))
            else:
                form.add_error(None, str(error))
            taken = error.instance if isinstance(error, DuplicateIdentifier) else None
            return self._form(declared, form, status=problem_of(error).status, taken=taken)
        told = "Enqueued." if instance.is_new else "This one had been enqueued before."
        if permissions.holds(request.user, permissions.VIEW_INSTANCE, instance):
            messages.success(request, told, fail_silently=True)
            return redirect("atp:instance", uuid=instance.uuid)
        messages.success(request, f"Enqueued as {instance.uuid}.", fail_silently=True)
        return redirect("atp:enqueue", identifier)

    def _form(self, declared, form, **context):
        signature = f"{declared.identifier}{declared.signature}"
        explanation = inspect.getdoc(declared.handler)
        return self.show(
            declared=declared,
            form=form,
            signature=signature,
            explanation=explanation,
            parameters=contracts.described(contracts.schema_of(declared), declared.signature),
            **context,
        )

    def _initial(self, declared):
        """Return the initial values: the options and inputs of another Instance, or a sketch."""
        like = self.request.GET.get("like")
        if like is None:
            return {
                "inputs": as_json(sketch(declared.signature)),
                "existing": EXISTING[0],
                "priority": declared.options.priority,
                "collection": declared.options.collection,
            }
        self.check_permissions(permissions.VIEW_INSTANCE, permissions.VIEW_INPUTS)
        other = authorization.look_up(
            self.request.user,
            lambda: queue.get(like),
            *(Instance, like, permissions.VIEW_INSTANCE, permissions.VIEW_INPUTS),
        )
        if other.type.identifier != declared.identifier:
            raise BadRequest(f"{other.uuid} is of Type {other.type}, not {declared}.")
        return {
            "inputs": _stored(other),
            "existing": EXISTING[0],
            "priority": other.priority,
            "collection": other.collection,
            "timeout": _delay(other.timeout),
            "max_retries": other.max_retries,
        }


def _told(path, text):
    """Return the sentence about an error in the inputs, after its path if it has one."""
    return f"{path}: {text}" if path else text


def _delay(timeout):
    """Return a time-out as the text of its form field, in whole seconds."""
    return None if timeout is None else f"{math.ceil(timeout.total_seconds())}s"


def _stored(instance):
    inputs = queue.inputs(instance)
    if inputs is not None and inputs.format == codec.JSON:
        with contextlib.suppress(ValueError, RecursionError):
            return as_json(json.loads(documents.shown_data(inputs)))
    raise BadRequest(f"The inputs of {instance.uuid} are no JSON: they cannot be given again.")


def sketch(signature):
    """Return the parameters that have a default which JSON can hold, with these defaults."""
    sketch = {}
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty:
            with contextlib.suppress(NotSerializable):
                sketch[name] = json.loads(tagged_json.to_json(parameter.default))
    return sketch


def as_json(value):
    return json.dumps(value, indent=2, ensure_ascii=False)
