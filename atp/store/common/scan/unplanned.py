"""Schedules whose slots nobody decides."""

from django.db.models import Q

from ....models import Schedule
from ...facts import Finding, Trouble
from ..schedules.planning import TRY_AGAIN
from .look import MOST


def unplanned(look):
    """Return the schedules that have been due for long, and those that cannot be planned.

    Only daemons plan, so the former count only if a daemon has run all the time.
    """
    # A schedule that cannot be planned is due again after TRY_AGAIN. The index is on due_at.
    soon = look.rows(Schedule).filter(due_at__lte=look.now + TRY_AGAIN, next_at__lte=look.then)
    troubled = ~Q(trouble="")
    found = soon.filter(troubled | Q(due_at__lte=look.then) if look.settled else troubled)
    rows = found.order_by("due_at").values_list(
        "identifier", "type__identifier", "next_at", "trouble"
    )
    return [
        Finding(trouble=Trouble.UNPLANNED, schedule=name, type=type, since=since, why=trouble)
        for name, type, since, trouble in rows[:MOST]
    ]
