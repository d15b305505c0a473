"""The kinds of fields that documents, bodies and queries have."""

from rest_framework import serializers as rest

from ..exceptions import ATPError
from ..verbs.registry import IDENTIFIER
from ..words.hints import did_you_mean
from ..words.kinds import Kind

TAGGED = (
    "What JSON lacks is an object with one key that starts with a dollar: "
    '`{"$date": "2030-01-31"}`, `{"$datetime": "2030-01-31T18:00:00+00:00"}`, '
    '`{"$time": "18:00:00"}`, `{"$timedelta": [days, seconds, microseconds]}`, '
    '`{"$decimal": "0.1"}`, `{"$uuid": "…"}`, `{"$bytes": "base64"}`, `{"$float": "nan"}`. '
    'An object that has such a key by itself is `{"$object": [["$date", "not a date"]]}`.'
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
    more = "JSON Schema (2020-12); null if this server has no contract. Not told in lists."
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
    """A value that a kind of :mod:`atp.words.kinds` reads."""

    def __init__(self, kind, help_text="", *, required=False, **kwargs):
        super().__init__(required=required, help_text=help_text, **kwargs)
        self.kind = kind

    def __deepcopy__(self, memo):
        # For each serializer; a kind is never changed.
        return type(self)(*self._args, **self._kwargs)

    @property
    def schema(self):
        return self.kind.schema

    def validate_empty_values(self, data):
        if data is rest.empty and self.required:
            raise rest.ValidationError("It is required.")
        # What is null where it must not be, the kind refuses with its own sentence.
        if data is None and not self.allow_null:
            return False, None
        return super().validate_empty_values(data)

    def to_internal_value(self, data):
        return checked(self.kind.from_json, data)

    def to_representation(self, value):
        return value


# Comments, since the docstrings of serializers are shown to clients.


class Strict(rest.Serializer):
    # It refuses what is not among its fields, with all else that is wrong.

    unknown = "There is no field {!r}."
    # Whether a request has to have such a body.
    is_needed = True
    # The limit of items in an array; 0 if one item comes alone.
    max_items = 0

    def run_validation(self, data=rest.empty):
        if not isinstance(data, dict):
            raise rest.ValidationError({"": ["It must be a JSON object."]})
        return super().run_validation(data)

    def to_internal_value(self, data):
        errors = {
            name: [self.unknown.format(name) + did_you_mean(name, self.fields)]
            for name in data
            if name not in self.fields
        }
        try:
            values = super().to_internal_value(data)
        except rest.ValidationError as error:
            errors |= error.detail
        if errors:
            raise rest.ValidationError(errors)
        return values


def checked(check, *args):
    """Return what ``check`` does; what it says is wrong is a ValidationError."""
    try:
        return check(*args)
    except (ATPError, ValueError) as error:
        raise rest.ValidationError(str(error)) from None
