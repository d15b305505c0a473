"""The kinds of fields that documents have, in short."""

from rest_framework import serializers as rest

from ..exceptions import LONGEST_DELAY


def text(told="", **kwargs):
    return rest.CharField(help_text=told, **kwargs)


def time(told="", **kwargs):
    return rest.DateTimeField(help_text=told, **kwargs)


def count(told="", **kwargs):
    return rest.IntegerField(min_value=0, help_text=told, **kwargs)


def seconds(told, **kwargs):
    return rest.FloatField(min_value=0, help_text=f"{told} Seconds.", **kwargs)


def word(words, told="", **kwargs):
    return rest.ChoiceField(choices=[str(word) for word in words], help_text=told, **kwargs)


class Plain(rest.Field):
    """One of ``possible``, schemas as OpenAPI has them."""

    def __init__(self, *possible, **kwargs):
        super().__init__(**kwargs)
        self.possible = possible


# A time, or seconds from now.
MOMENT = (
    {"type": "string", "format": "date-time"},
    {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY},
)
