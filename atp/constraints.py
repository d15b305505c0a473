"""What the database itself refuses of an Instance, in few words.

PostgreSQL reads the text of each constraint of a table anew in every statement that
writes to it, for one row as for a thousand, token by token. Said as one would say it
first, value by value, that took a quarter of what the server has to do for an enqueue.
"""

from django.db.models import (
    BooleanField,
    CheckConstraint,
    ExpressionWrapper,
    F,
    Q,
    TextField,
    Value,
)
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Abs, StrIndex
from django.db.models.lookups import GreaterThan, GreaterThanOrEqual, LessThanOrEqual

from .options import MAX_PRIORITY
from .states import TERMINAL, Reason, State

# What begins like this has ended: of all states, these two.
_ENDED = "F"
assert {state for state in State if state.startswith(_ENDED)} == TERMINAL


def _outcomes():
    """Return every state with its reason, each between spaces."""
    live = [state for state in State if state != State.FAILED]
    outcomes = [(state, "") for state in live] + [(State.FAILED, reason) for reason in Reason]
    return "".join(f" {state}.{reason}" for state, reason in outcomes) + " "


def _joined(first, *rest):
    for part in rest:
        first = CombinedExpression(first, "||", part, output_field=TextField())
    return first


def _is(condition):
    return ExpressionWrapper(condition, output_field=BooleanField())


OF_INSTANCE = [
    # A state that there is, with a reason that there is if it is FAILED, else with none.
    CheckConstraint(
        condition=GreaterThan(
            StrIndex(
                Value(_outcomes()),
                _joined(Value(" "), F("state"), Value("."), F("reason"), Value(" ")),
            ),
            0,
        ),
        name="atp_instance_outcome",
    ),
    # What has ended says when; the conditions of indexes rely on it.
    CheckConstraint(
        condition=CombinedExpression(
            _is(Q(finished__isnull=True)),
            "<>",
            _is(Q(state__startswith=_ENDED)),
            output_field=BooleanField(),
        ),
        name="atp_instance_ended",
    ),
    CheckConstraint(
        condition=LessThanOrEqual(Abs("priority"), MAX_PRIORITY), name="atp_instance_urgency"
    ),
    CheckConstraint(
        condition=GreaterThanOrEqual(
            F("attempt").bitor(F("restarts")).bitor(F("retries")).bitor(F("lost")), 0
        ),
        name="atp_instance_counts",
    ),
]
