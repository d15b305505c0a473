"""Serializer fields for documents, bodies and queries."""

from itertools import islice

from rest_framework import serializers as rest

from ..exceptions import ATPError
from ..verbs.registry import IDENTIFIER
from ..words.hints import did_you_mean
from ..words.kinds import Kind
from .problems import MOST

TAGGED = (
    "A value that JSON lacks is an object with one key that starts with a dollar: "
    '`{"$date": "2030-01-31"}`, `{"$datetime": "2030-01-31T18:00:00+00:00"}`, '
    '`{"$time": "18:00:00"}`, `{"$timedelta": [days, seconds, microseconds]}`, '
    '`{"$decimal": "0.1"}`, `{"$uuid": "…"}`, `{"$bytes": "base64"}`, `{"$float": "nan"}`. '
    'An object of yours with such a key alone is `{"$object": [["$date", "not a date"]]}`.'
)


def text(help_text="", **kwargs):
    return _field(rest.CharField, help_text, **kwargs)


def texts(help_text):
    return _field(rest.ListField, help_text, absent=True, child=text())


def time(help_text="", **kwargs):
    return _field(rest.DateTimeField, help_text, **kwargs)


def count(help_text="", **kwargs):
    return _field(rest.IntegerField, help_text, min_value=0, **kwargs)


def seconds(help_text, **kwargs):
    return _field(rest.FloatField, f"{help_text} Seconds.", min_value=0, **kwargs)


def flag(help_text, **kwargs):
    return _field(rest.BooleanField, help_text, **kwargs)


def schema(help_text):
    more = "JSON Schema (2020-12); null if this server has none. Not given in lists."
    text = f"{help_text}, {more}"
    return _field(rest.DictField, text, null=True, absent=True, child=rest.JSONField())


def word(words, help_text="", **kwargs):
    return _field(rest.ChoiceField, help_text, choices=[str(word) for word in words], **kwargs)


def _field(kind, help_text, null=False, absent=False, **more):
    return kind(help_text=help_text, allow_null=null, required=not absent, **more)


class TypeIdentifier(Kind):
    schema = {"type": "string", "pattern": f"^{IDENTIFIER}$"}

    def from_text(self, text):
        return text

    def from_json(self, value):
        if not isinstance(value, str):
            raise ValueError("The identifier of a Type is needed, as text.")
        return value


class Value(rest.Field):
    """A field whose values a Kind of :mod:`atp.words.kinds` reads."""

    def __init__(self, kind, help_text="", *, required=False, **kwargs):
        super().__init__(required=required, help_text=help_text, **kwargs)
        self.kind = kind

    def __deepcopy__(self, memo):
        # Each serializer copies its fields. The copies share the kind, which never changes.
        return type(self)(*self._args, **self._kwargs)

    @property
    def schema(self):
        return self.kind.schema

    def validate_empty_values(self, data):
        if data is rest.empty and self.required:
            raise rest.ValidationError("It is required.")
        # Leave a null that is not allowed to the kind: it refuses that with its own sentence.
        if data is None and not self.allow_null:
            return False, None
        return super().validate_empty_values(data)

    def to_internal_value(self, data):
        return checked(self.kind.from_json, data)

    def to_representation(self, value):
        return value


# Strict has comments, no docstring: clients are shown the docstrings of serializers.


class Strict(rest.Serializer):
    # It reports unknown fields together with all other errors.

    unknown = "There is no field {!r}."
    # Whether a request must have this body.
    is_needed = True
    # The most items in an array; 0 if the body is one item, not an array.
    max_items = 0

    def run_validation(self, data=rest.empty):
        if not isinstance(data, dict):
            raise rest.ValidationError({"": ["It must be a JSON object."]})
        return super().run_validation(data)

    def to_internal_value(self, data):
        unknown = islice((name for name in data if name not in self.fields), MOST)
        errors = {
            name: [self.unknown.format(name) + did_you_mean(name, self.fields)] for name in unknown
        }
        try:
            values = super().to_internal_value(data)
        except rest.ValidationError as error:
            errors |= error.detail
        if errors:
            raise rest.ValidationError(errors)
        return values


def checked(check, *args):
    """Return the value of ``check``. Turn its ATPError or ValueError into a ValidationError."""
    try:
        return check(*args)
    except (ATPError, ValueError) as error:
        raise rest.ValidationError(str(error)) from None
    except RecursionError:  # the sentence about it has to write the value
        raise rest.ValidationError("It is nested too deeply.") from None
