"""How gates and limits look, in answers and in bodies."""

from rest_framework import serializers as rest

from ..options import MAX_IDENTIFIER
from ..registry import IDENTIFIER
from . import fields
from .serializers import page_of


class GateSerializer(rest.Serializer):
    type = fields.text("Identifier of the Type; null is everything.", allow_null=True)
    collection = fields.text("Of this lane of the Type; null is all of it.", allow_null=True)
    mode = fields.word(("hold", "drop"), "What becomes of what waits: it waits on, or it FAILs.")
    reason = fields.text()
    who = fields.text("Who has set it, and through which channel.")
    since = fields.time()
    until = fields.time("When it opens by itself; null is never.", allow_null=True)


class SetGateSerializer(rest.Serializer):
    type = rest.RegexField(
        f"^{IDENTIFIER}$", required=False, allow_null=True, help_text="Without it, everything."
    )
    collection = fields.text(
        "This lane of the Type only; printable.",
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=MAX_IDENTIFIER,
    )
    mode = fields.word(("hold", "drop", "open"))
    reason = fields.text(
        "For the log and the pages; printable.",
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=MAX_IDENTIFIER,
    )
    until = fields.Plain(
        *fields.MOMENT,
        required=False,
        allow_null=True,
        help_text="When it opens by itself: a time with an offset, or seconds from now.",
    )
    expected = fields.Plain(
        {"enum": ["hold", "drop", "open"]},
        {"type": "string", "format": "date-time"},
        required=False,
        allow_null=True,
        help_text="How the gate has to be, or `since` when it has been as it is; "
        "if somebody else has set it, that is a 409.",
    )


class GatesSetSerializer(page_of(GateSerializer)):
    """All gates that are shut, and what has become of the one that was set."""

    told = fields.text("What was done, what it replaced, and what shuts the place besides.")
    was = GateSerializer(help_text="What was shut there before.", allow_null=True)


class LimitSerializer(rest.Serializer):
    type = fields.text("Identifier of the Type.")
    collection = fields.text("Of this lane of the Type; null is all of it.", allow_null=True)
    max_running = fields.count("Claimed at any time; null is no limit.", allow_null=True)
    rate = fields.text("Started in a time, as `100/m`; empty is no limit.")
    burst = fields.count("Of the rate at once, after a pause.")
    weight = rest.FloatField(min_value=0, help_text="Share of the Type beside others.")
    is_set = rest.BooleanField(help_text="By an operator; otherwise the code declares it.")
    who = fields.text("Who has set it, and through which channel.")
    since = fields.time()


class LimitsSetSerializer(page_of(LimitSerializer)):
    """All limits that there are, and with `default` what was left to the code."""

    told = fields.text("What is in force with `default`; otherwise empty.")


class SetLimitSerializer(rest.Serializer):
    type = rest.RegexField(f"^{IDENTIFIER}$", help_text="Identifier of the Type.")
    collection = fields.text(
        "This lane of the Type only; printable.",
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=MAX_IDENTIFIER,
    )
    max_running = rest.IntegerField(
        min_value=1, max_value=1_000_000, required=False, allow_null=True
    )
    rate = rest.RegexField(
        r"^[1-9][0-9]{0,8}/([1-9][0-9]{0,4})?(min|[smhdw])$",
        required=False,
        allow_null=True,
        help_text="As `50/s`, `100/min` or `5/10s`.",
    )
    burst = rest.IntegerField(min_value=1, max_value=1_000_000, required=False, allow_null=True)
    weight = rest.FloatField(min_value=0.001, max_value=1000, required=False, allow_null=True)
    default = rest.BooleanField(
        required=False, help_text="Leave it to the code again; with nothing beside it."
    )
